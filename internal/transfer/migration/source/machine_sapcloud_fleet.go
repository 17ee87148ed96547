package source

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeAutoscalerBounds: the bounds of the autoscaler's group are in its flags and not in the object.
	CodeAutoscalerBounds = "AutoscalerBounds"
	// CodeScaleDownPending: the autoscaler has chosen machines that are not marked yet.
	CodeScaleDownPending = "ScaleDownPending"
)

// endless stands for a time without end.
const endless = 99999 * time.Hour

func (r *sapcloudReader) deployment() {
	f := r.fields
	spec := f.child("spec")
	f.ignore("status")
	deployment := &v1beta1.MachineDeployment{}
	r.metadata.apply(deployment)
	to := &deployment.Spec
	to.Replicas = spec.bounded("replicas", 0, 100000)
	template, health := r.template(spec)
	to.Template = template
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.bounded("minReadySeconds", 0, 86400)
	to.Paused = spec.flag("paused")
	to.RevisionHistoryLimit = spec.historyLimit("revisionHistoryLimit", 100) // It retained all.
	to.ProgressDeadline = spec.progressDeadline("progressDeadlineSeconds", int32(endless/time.Second), to.MinReadySeconds)
	to.DeletePolicy = v1beta1.DeleteOldest
	to.Remediation.MaxInFlight = oneMachine()
	sapcloudStrategy(spec.child("strategy"), to)
	spec.loses("The rollback that it asks for is not carried out. Let the old system finish it, or remove the field.",
		"rollbackTo")
	r.autoPreserve(spec)
	r.autoscaler()
	r.converted.Object = deployment
	r.converted.Check = health.check(deployment.Name, to.Selector)
}

// oneMachine is how many failed machines of a deployment the old system replaces at a time.
func oneMachine() *intstr.IntOrString {
	one := intstr.FromInt32(1)
	return &one
}

// sapcloudStrategy reads the strategy. Missing bounds are 1, as the old system's documentation has it.
func sapcloudStrategy(f *fields, to *v1beta1.MachineDeploymentSpec) {
	kind := f.text("type")
	rolling, inPlace := f.child("rollingUpdate"), f.child("inPlaceUpdate")
	switch kind {
	case "", "RollingUpdate":
		to.Strategy.Type, to.Strategy.RollingUpdate = v1beta1.StrategyRollingUpdate, rolling.rollingUpdate(1, 1)
	case "Recreate":
		to.Strategy.Type = v1beta1.StrategyRecreate
	case "InPlaceUpdate":
		to.Strategy.Type, to.Strategy.InPlace = v1beta1.StrategyInPlace, sapcloudInPlace(inPlace)
	default:
		f.find(provider.FindingBlocker, CodeInvalidValue, "type", "The old system has the strategies RollingUpdate, "+
			"Recreate and InPlaceUpdate.")
	}
	// The old system ignores what is for another strategy.
	for _, other := range []*fields{rolling, inPlace} {
		other.ignore("maxSurge", "maxUnavailable")
	}
	inPlace.ignore("orchestrationType")
}

func sapcloudInPlace(f *fields) *v1beta1.InPlaceUpdate {
	to := &v1beta1.InPlaceUpdate{MaxUnavailable: f.numberOrPercentage("maxUnavailable", 1)}
	if isZero(to.MaxUnavailable) {
		f.find(provider.FindingNote, CodeBounded, "maxUnavailable", "Machinist makes no machines for an update in place, "+
			"so one has to be unavailable; it becomes 1.")
		to.MaxUnavailable = oneMachine()
	}
	if surge := f.numberOrPercentage("maxSurge", 0); !isZero(surge) {
		f.find(provider.FindingLoss, CodeNotSupported, "maxSurge", "Machinist makes no additional machines for an update "+
			"in place.")
	}
	switch orchestration := f.text("orchestrationType"); orchestration {
	case "", string(v1beta1.OrchestrationAuto):
		to.Orchestration = v1beta1.OrchestrationAuto
	case string(v1beta1.OrchestrationManual):
		to.Orchestration = v1beta1.OrchestrationManual
		f.find(provider.FindingNote, CodeNotSupported, "orchestrationType", "Choose machines by the label %s of the "+
			"Machine, not by a label of the Node.", v1beta1.LabelSelectedForUpdate)
	default:
		f.find(provider.FindingBlocker, CodeInvalidValue, "orchestrationType", "It must be Auto or Manual.")
	}
	return to
}

func (r *sapcloudReader) set() {
	f := r.fields
	spec := f.child("spec")
	f.ignore("status")
	set := &v1beta1.MachineSet{}
	r.metadata.apply(set)
	to := &set.Spec
	to.Replicas = spec.bounded("replicas", 0, 100000)
	// The old controller makes machines from the class of the template only.
	spec.ignore("machineClass")
	template, health := r.template(spec)
	to.Template = template
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.bounded("minReadySeconds", 0, 86400)
	to.DeletePolicy = v1beta1.DeleteOldest
	r.autoPreserve(spec)
	r.converted.Object = set
	if r.metadata.controller == nil {
		r.converted.Check = health.check(set.Name, to.Selector)
	}
}

// autoPreserve reports that failed machines without an annotation are no longer preserved.
func (r *sapcloudReader) autoPreserve(spec *fields) {
	const name = "autoPreserveFailedMachineMax"
	if n := spec.bounded(name, 0, math.MaxInt32); *n > 0 {
		spec.find(provider.FindingLoss, CodeNotSupported, name, "Machinist preserves failed machines only if they have an "+
			"annotation. Set %s: %s in the metadata of the template after the migration.", v1beta1.AnnotationPreserve,
			v1beta1.PreserveWhenFailed)
	}
}

// autoscaler reports what the cluster-autoscaler of the old system knows of a deployment, or wrote there.
func (r *sapcloudReader) autoscaler() {
	r.fields.find(provider.FindingNote, CodeAutoscalerBounds, "spec.replicas", "If the old cluster-autoscaler scales it, "+
		"the bounds are in the flag nodes of that process. Set the annotations %s and %s before the new one runs.",
		v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation)
	if r.metadata.oldAnnotations[sapcloudTrigger] != "" {
		r.metadata.find(provider.FindingLoss, CodeScaleDownPending, "annotations."+sapcloudTrigger, "The old "+
			"cluster-autoscaler has chosen machines that must be deleted. Wait until the annotation is empty, or Machinist "+
			"deletes others instead.")
	}
}

// template reads the template of a deployment or set, and how the old system judges the machines.
func (r *sapcloudReader) template(f *fields) (v1beta1.MachineTemplateSpec, sapcloudHealth) {
	from := f.child("template")
	to := v1beta1.MachineTemplateSpec{ObjectMeta: r.templateMeta(from)}
	r.templateKeys(from)
	spec := from.child("spec")
	spec.loses("The instances of a template have no provider ID in common.", "providerID")
	health := r.machineSpec(spec, &to.Spec)
	return to, health
}

// templateKeys reports what keys in the metadata of a template mean for all machines that are made from it.
func (r *sapcloudReader) templateKeys(f *fields) {
	annotations, labels := f.peek("metadata").peek("annotations"), f.peek("metadata").peek("labels")
	if annotations.text(sapcloudPreserve) != "" {
		f.find(provider.FindingLoss, CodePreserve, "metadata.annotations."+sapcloudPreserve, "New machines of the template "+
			"are not preserved. Set %s in the metadata of the template after the migration.", v1beta1.AnnotationPreserve)
	}
	if labels.text(sapcloudForceDeletion) == sapcloudTrue {
		f.find(provider.FindingLoss, CodeNotSupported, "metadata.labels."+sapcloudForceDeletion, "New machines of the "+
			"template are drained when they are deleted.")
	}
}
