package source

import (
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

func (r *openshiftReader) set() {
	f := r.fields
	if r.staysWithOldSystem(f.peek("spec").peek("template").peek("metadata").peek("labels").stringFields()) {
		return
	}
	r.checkOperator()
	spec := f.child("spec")
	r.checkAuthority(spec)
	set := &v1beta1.MachineSet{}
	r.metadata.apply(set)
	to := &set.Spec
	to.Replicas = spec.boundedInt("replicas", v1beta1.DefaultReplicas, 100000)
	to.Template = r.template(spec)
	to.Selector = r.selector(spec, to.Template.ObjectMeta.Labels)
	to.MinReadySeconds = *spec.boundedInt("minReadySeconds", 0, 86400)
	to.DeletePolicy = spec.deletePolicy("deletePolicy")
	// In the old system, only the health check's maxUnhealthy limits the number.
	to.Remediation.MaxInFlight = allMachines()
	if r.converted.Class != nil {
		r.converted.Class.Capacity = r.capacity()
	}
	if name := r.metadata.oldAnnotations[openshiftMachineAutoscaler]; name != "" {
		r.metadata.report(provider.FindingNote, CodeMachineAutoscaler, "annotations."+openshiftMachineAutoscaler, "The "+
			"MachineAutoscaler %.317s sets the minimum and maximum size of the set. Machinist's set keeps these sizes in "+
			"annotations. After the migration, delete the MachineAutoscaler, and let cluster-autoscaler scale Machinist's "+
			"sets.", name)
	}
	r.converted.Object = set
	// If a user's health check also selects a machine, the user's health check takes precedence over this generated
	// health check. The suffix prevents a conflict with a user's health check that has the name of the set.
	r.converted.HealthCheck = noRemediation(set.Name+"-none", to.Selector)
}

func (r *openshiftReader) template(f *fields) v1beta1.MachineTemplateSpec {
	from := f.child("template")
	to := v1beta1.MachineTemplateSpec{ObjectMeta: r.templateMeta(from)}
	if _, found := from.peek("metadata").peek("annotations").object[openshiftSkipDrain]; found {
		from.report(provider.FindingLoss, CodeNotSupported, "metadata.annotations."+openshiftSkipDrain, "New machines of "+
			"the template are drained. To prevent that, set %s in the metadata of the template after the migration.",
			v1beta1.AnnotationSkipDrain)
	}
	spec := from.child("spec")
	spec.reportLoss("The instances of a template cannot have the same provider ID.", "providerID")
	if authority := spec.text("authoritativeAPI"); authority == "ClusterAPI" {
		spec.report(provider.FindingLoss, CodeAuthoritativeAPI, "authoritativeAPI", "Machinist manages new machines.")
	}
	r.machineSpec(spec, &to.Spec)
	return to
}

func (r *openshiftReader) machine() {
	f := r.fields
	if r.staysWithOldSystem(r.metadata.oldLabels) {
		return
	}
	r.checkOperator()
	spec := f.child("spec")
	r.checkAuthority(spec)
	machine := &v1beta1.Machine{}
	r.machineSpec(spec, &machine.Spec)
	for _, key := range []string{openshiftDeleteMachine, openshiftOldDeleteMachine} {
		if r.metadata.oldAnnotations[key] != "" {
			r.metadata.later[v1beta1.AnnotationDeleteMachine] = "true"
		}
	}
	if _, found := r.metadata.oldAnnotations[openshiftSkipDrain]; found {
		r.metadata.later[v1beta1.AnnotationSkipDrain] = "true"
	}
	r.metadata.apply(machine)
	r.converted.Object = machine
	r.converted.Machine = statusWithNodeRef(f, &r.metadata, "")
	r.converted.Machine.ProviderID = spec.text("providerID")
}

func (r *openshiftReader) machineSpec(f *fields, to *v1beta1.MachineSpec) {
	if r.nodeMeta(f, &to.Node) != "" {
		f.report(provider.FindingLoss, CodeNotSupported, "metadata.name", "Machinist finds a Node by its provider ID, "+
			"not by its name.")
	}
	to.Node.Taints = f.taints(nil)
	hooks := f.child("lifecycleHooks")
	to.LifecycleHooks.PreDrain, to.LifecycleHooks.PreTerminate = hooks.lifecycleHooks("preDrain"),
		hooks.lifecycleHooks("preTerminate")
	to.Timeouts = openshiftTimeouts(f)
	r.converted.Class = r.instance(f.child("providerSpec"))
}

// openshiftTimeouts returns the timeouts of a machine. By default, the old system waits without a limit for the Node
// and the drain, and does not wait for volumes. Machinist waits for volumes for up to five minutes by default.
func openshiftTimeouts(f *fields) v1beta1.MachineTimeouts {
	f.report(provider.FindingNote, CodeCreationTimeout, "", "The old controller waited for the Node without a limit. "+
		"Machinist waits for %s.", noCreationLimit)
	seconds := func(name string) time.Duration {
		n := valueOr(f.number(name), 0)
		if n < 0 {
			f.report(provider.FindingBlocker, CodeInvalidValue, name, "The number must not be negative.")
		}
		if n <= 0 {
			return noLimit
		}
		return time.Duration(n) * time.Second
	}
	to := v1beta1.MachineTimeouts{Creation: asDuration(noCreationLimit),
		Drain: asDuration(seconds("nodeDrainTimeoutSeconds"))}
	const detach, deletion = "nodeVolumeDetachTimeoutSeconds", "nodeDeletionTimeoutSeconds"
	if f.number(detach) != nil {
		to.VolumeDetach = asDuration(seconds(detach))
	}
	if f.number(deletion) != nil {
		f.report(provider.FindingLoss, CodeNotSupported, deletion, "Machinist deletes the Node of a deleted instance, "+
			"and has no timeout for the deletion of the Node.")
	}
	return to
}

func (r *openshiftReader) instance(f *fields) *Class {
	spec, found := fieldAs[map[string]any](f, "value", "an object")
	if !found {
		f.report(provider.FindingBlocker, CodeMissingField, "value", "There is no description of the instance.")
		return nil
	}
	value := newFields(spec, f.pathOf("value"), f.findings) // The driver reports unknown fields.
	class := &Class{Path: f.pathOf("value"), Provider: value.text("kind"), Spec: runtime.DeepCopyJSON(spec)}
	if class.Provider == "" {
		value.report(provider.FindingBlocker, CodeMissingField, "kind", "The description of the instance has no kind, "+
			"such as AzureMachineProviderSpec.")
	}
	for _, name := range []string{"credentialsSecret", "cloudsSecret"} { // OpenStack has the second name.
		if secret := r.secret(value, name); secret != nil {
			class.Credentials = append(class.Credentials, *secret)
		}
	}
	if secret := r.userDataSecret(value); secret != nil {
		class.UserData = &KeyRef{Kind: "Secret", Namespace: secret.Namespace, Name: secret.Name, Key: "userData"}
		// A machine of a set does not need this finding, because its set has the finding.
	} else if r.metadata.controller == nil {
		value.report(provider.FindingLoss, CodeUserData, "userDataSecret", "There is no user data. Name a Secret with "+
			"user data for new machines in spec.userDataRef of the Migration.")
	}
	if class.Provider == "" {
		return nil
	}
	return class
}

// userDataSecret returns the name of the Secret with user data, or nil. Descriptions for libvirt have it in other
// fields than those for clouds.
func (r *openshiftReader) userDataSecret(f *fields) *types.NamespacedName {
	if secret := r.secret(f, "userDataSecret"); secret != nil {
		return secret
	}
	for _, name := range []string{"ignition", "cloudInit"} {
		raw, _ := fieldAs[map[string]any](f, name, "an object")
		if secret := newFields(raw, f.pathOf(name), f.findings).text("userDataSecret"); secret != "" {
			return &types.NamespacedName{Namespace: r.namespace, Name: secret}
		}
	}
	return nil
}

func (r *openshiftReader) secret(f *fields, name string) *types.NamespacedName {
	raw, _ := fieldAs[map[string]any](f, name, "an object")
	ref := newFields(raw, f.pathOf(name), f.findings)
	secret := types.NamespacedName{Namespace: ref.text("namespace"), Name: ref.text("name")}
	if secret.Name == "" {
		return nil
	}
	if secret.Namespace == "" {
		secret.Namespace = r.namespace
	}
	return &secret
}

// capacity returns the capacity of the set's Nodes for the autoscaler, or nil without a capacity annotation.
func (r *openshiftReader) capacity() *v1beta1.ClassCapacity {
	resources := corev1.ResourceList{}
	for _, from := range []struct {
		annotation string
		to         corev1.ResourceName
		unit       string
	}{
		{openshiftCPU, corev1.ResourceCPU, ""},
		{openshiftMemory, corev1.ResourceMemory, "Mi"},
		{openshiftGPU, nvidiaGPU, ""}, // The autoscaler treats these GPUs as NVIDIA GPUs.
		{openshiftMaxPods, corev1.ResourcePods, ""},
	} {
		text, found := r.metadata.oldAnnotations[from.annotation]
		if !found {
			continue
		}
		n, err := strconv.ParseUint(text, 10, 31)
		switch {
		case err != nil:
			r.metadata.report(provider.FindingNote, CodeInvalidValue, "annotations."+from.annotation, "The value is not a "+
				"number, so the autoscaler cannot read it.")
		case n > 0:
			resources[from.to] = resource.MustParse(strconv.FormatUint(n, 10) + from.unit)
		}
	}
	if len(resources) == 0 {
		return nil
	}
	return &v1beta1.ClassCapacity{Resources: resources}
}
