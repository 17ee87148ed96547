package source

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodeAutoscalerBounds: the minimum and maximum sizes are only in the flags of the old autoscaler.
	CodeAutoscalerBounds = "AutoscalerBounds"
	// CodeScaleDownPending: the autoscaler has selected machines, but they do not have the delete mark yet.
	CodeScaleDownPending = "ScaleDownPending"
)

// noLimit is the timeout of Machinist for a wait that has no timeout in the old system.
const noLimit = 99999 * time.Hour

func (r *sapcloudReader) deployment() {
	f := r.fields
	spec := f.child("spec")
	f.ignore("status")
	deployment := &v1beta1.MachineDeployment{}
	r.metadata.apply(deployment)
	to := &deployment.Spec
	to.Replicas = spec.boundedInt("replicas", 0, 100000)
	template, health := r.template(spec)
	to.Template = template
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.boundedInt("minReadySeconds", 0, 86400)
	to.Paused = spec.boolean("paused")
	to.RevisionHistoryLimit = spec.historyLimit("revisionHistoryLimit", 100) // The old system kept all old sets.
	to.ProgressDeadline = spec.progressDeadline("progressDeadlineSeconds", int32(noLimit/time.Second), to.MinReadySeconds)
	to.DeletePolicy = v1beta1.DeleteOldest
	to.Remediation.MaxInFlight = oneMachine()
	sapcloudStrategy(spec.child("strategy"), to)
	spec.reportLoss("The requested rollback is not carried out. Let the old system finish it, or remove the field.",
		"rollbackTo")
	r.autoPreserve(spec)
	r.autoscaler()
	r.converted.Object = deployment
	r.converted.HealthCheck = health.check(deployment.Name, to.Selector)
}

// oneMachine returns 1, the number of machines that the old system replaces at a time.
func oneMachine() *intstr.IntOrString {
	one := intstr.FromInt32(1)
	return &one
}

// sapcloudStrategy reads the strategy. The default of each bound is 1, as in the old documentation.
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
		f.report(provider.FindingBlocker, CodeInvalidValue, "type", "The strategy must be RollingUpdate, Recreate or "+
			"InPlaceUpdate.")
	}
	// The old system ignores these fields if the strategy does not use them.
	for _, other := range []*fields{rolling, inPlace} {
		other.ignore("maxSurge", "maxUnavailable")
	}
	inPlace.ignore("orchestrationType")
}

func sapcloudInPlace(f *fields) *v1beta1.InPlaceUpdate {
	to := &v1beta1.InPlaceUpdate{MaxUnavailable: f.numberOrPercentage("maxUnavailable", 1)}
	if isZero(to.MaxUnavailable) {
		f.report(provider.FindingNote, CodeBounded, "maxUnavailable", "Machinist creates no machines for an update in "+
			"place, so at least one machine must be unavailable. The new value of maxUnavailable is 1.")
		to.MaxUnavailable = oneMachine()
	}
	if surge := f.numberOrPercentage("maxSurge", 0); !isZero(surge) {
		f.report(provider.FindingLoss, CodeNotSupported, "maxSurge", "Machinist creates no additional machines for an "+
			"update in place.")
	}
	switch orchestration := f.text("orchestrationType"); orchestration {
	case "", string(v1beta1.OrchestrationAuto):
		to.Orchestration = v1beta1.OrchestrationAuto
	case string(v1beta1.OrchestrationManual):
		to.Orchestration = v1beta1.OrchestrationManual
		f.report(provider.FindingNote, CodeNotSupported, "orchestrationType", "Select machines with the label %s of the "+
			"Machine, not with a label of the Node.", v1beta1.LabelSelectedForUpdate)
	default:
		f.report(provider.FindingBlocker, CodeInvalidValue, "orchestrationType", "The value must be Auto or Manual.")
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
	to.Replicas = spec.boundedInt("replicas", 0, 100000)
	// The old controller ignores the field machineClass of the set, and uses the class in spec.template.
	spec.ignore("machineClass")
	template, health := r.template(spec)
	to.Template = template
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.boundedInt("minReadySeconds", 0, 86400)
	to.DeletePolicy = v1beta1.DeleteOldest
	r.autoPreserve(spec)
	r.converted.Object = set
	if r.metadata.controller == nil {
		r.converted.HealthCheck = health.check(set.Name, to.Selector)
	}
}

// autoPreserve reports that Machinist preserves no failed machine without an annotation.
func (r *sapcloudReader) autoPreserve(spec *fields) {
	const name = "autoPreserveFailedMachineMax"
	if n := spec.boundedInt(name, 0, math.MaxInt32); *n > 0 {
		spec.report(provider.FindingLoss, CodeNotSupported, name, "Machinist only preserves failed machines that have an "+
			"annotation. Set %s: %s in the metadata of the template after the migration.", v1beta1.AnnotationPreserve,
			v1beta1.PreserveWhenFailed)
	}
}

// autoscaler reports the old cluster-autoscaler's settings: the bounds in its flags, and the machines in its
// annotation.
func (r *sapcloudReader) autoscaler() {
	r.fields.report(provider.FindingNote, CodeAutoscalerBounds, "spec.replicas", "If the old cluster-autoscaler "+
		"scales this deployment, the flag --nodes of its process has the bounds. Set the annotations %s and %s "+
		"before the new cluster-autoscaler runs.", v1beta1.AutoscalerMinSizeAnnotation, v1beta1.AutoscalerMaxSizeAnnotation)
	if r.metadata.oldAnnotations[sapcloudTrigger] != "" {
		r.metadata.report(provider.FindingLoss, CodeScaleDownPending, "annotations."+sapcloudTrigger, "The old "+
			"cluster-autoscaler has selected machines for deletion. Wait until the annotation is empty. Otherwise "+
			"Machinist deletes other machines.")
	}
}

func (r *sapcloudReader) template(f *fields) (v1beta1.MachineTemplateSpec, sapcloudHealth) {
	from := f.child("template")
	to := v1beta1.MachineTemplateSpec{ObjectMeta: r.templateMeta(from)}
	r.templateKeys(from)
	spec := from.child("spec")
	spec.reportLoss("The instances of a template cannot have the same provider ID.", "providerID")
	health := r.machineSpec(spec, &to.Spec)
	return to, health
}

// templateKeys reports keys in a template's metadata that affect all machines of the template.
func (r *sapcloudReader) templateKeys(f *fields) {
	annotations, labels := f.peek("metadata").peek("annotations"), f.peek("metadata").peek("labels")
	if annotations.text(sapcloudPreserve) != "" {
		f.report(provider.FindingLoss, CodePreserve, "metadata.annotations."+sapcloudPreserve, "New machines of the "+
			"template are not preserved. To preserve them, set %s in the metadata of the template after the migration.",
			v1beta1.AnnotationPreserve)
	}
	if labels.text(sapcloudForceDeletion) == sapcloudTrue {
		f.report(provider.FindingLoss, CodeNotSupported, "metadata.labels."+sapcloudForceDeletion, "New machines of the "+
			"template are drained when they are deleted.")
	}
}
