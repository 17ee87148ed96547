package source

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const clusterAPIStartupTimeout = 10 * time.Minute

// healthCheck reads a health check. The newer version of the API has the conditions and the remediation in separate
// objects, and seconds instead of durations.
func (r *clusterAPIReader) healthCheck() {
	f := r.fields
	if r.staysWithOldSystem(f.peek("spec").peek("selector").peek("matchLabels").stringFields()) {
		return
	}
	r.checkTopology()
	spec := f.child("spec")
	f.ignore("status")
	cluster := r.clusterName(spec, true)
	to := &v1beta1.MachineHealthCheck{}
	to.Spec.Selector = r.checkSelector(spec)
	if r.selectsStayingMachines(spec, cluster, to.Spec.Selector) {
		return
	}
	checks, remediation := spec.child("checks"), spec.child("remediation")
	conditions := nodeConditions{fields: spec, name: "unhealthyConditions"}
	for _, c := range spec.objects("unhealthyConditions") {
		unhealthyCondition(c, &conditions)
	}
	for _, c := range checks.objects("unhealthyNodeConditions") {
		conditions.fields, conditions.name = checks, "unhealthyNodeConditions"
		unhealthyCondition(c, &conditions)
	}
	to.Spec.UnhealthyNodeConditions = conditions.list
	const machineConditions = "Machinist's machines do not have the conditions of Cluster API's machines."
	spec.reportLoss(machineConditions, "unhealthyMachineConditions")
	checks.reportLoss(machineConditions, "unhealthyMachineConditions")
	trigger := remediation.child("triggerIf")
	to.Spec.UnhealthyRange = cmp.Or(unhealthyRange(trigger, "unhealthyInRange"), unhealthyRange(spec, "unhealthyRange"))
	to.Spec.MaxUnhealthy = maxUnhealthy(spec, "maxUnhealthy")
	if trigger.has("unhealthyLessThanOrEqualTo") {
		to.Spec.MaxUnhealthy = maxUnhealthy(trigger, "unhealthyLessThanOrEqualTo")
	}
	to.Spec.NodeStartupTimeout = r.startupTimeout(spec, checks)
	to.Spec.Remediation.Type = r.remediation(spec, remediation)
	r.metadata.apply(to)
	r.converted.Object = to
}

func unhealthyRange(f *fields, name string) string {
	text := f.text(name)
	if text == "" {
		return ""
	}
	if _, err := v1beta1.ParseUnhealthyRange(text); err != nil {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The range %s is invalid: %s.", text, err)
		return ""
	}
	return text
}

// selectsStayingMachines reports whether the health check selects only machines that stay with the old system. Then
// the health check stays, too. If the health check also selects other machines, the machines that stay lose it.
func (r *clusterAPIReader) selectsStayingMachines(spec *fields, cluster string, by metav1.LabelSelector) bool {
	selector, err := metav1.LabelSelectorAsSelector(&by)
	if err != nil || r.objects == nil {
		return false // checkSelector has reported an invalid selector.
	}
	var staying []string
	others := 0
	machine := schema.GroupKind{Group: r.groups[0], Kind: "Machine"}
	for _, m := range r.objects.All(machine, r.namespace) {
		inCluster, _, _ := unstructured.NestedString(m.Object, "spec", "clusterName")
		switch {
		case inCluster != cluster || !selector.Matches(labels.Set(m.GetLabels())):
		case isOfControlPlane(m.GetLabels(), metav1.GetControllerOf(m)) || isOfPool(metav1.GetControllerOf(m)):
			staying = append(staying, m.GetName())
		default:
			others++
		}
	}
	switch {
	case len(staying) == 0:
		return false
	case others == 0:
		r.leaveBehind(provider.FindingNote, CodeControlPlane, "The health check selects only machines that stay with the "+
			"old system, such as %s. The health check stays, too.", staying[0])
		return true
	}
	spec.report(provider.FindingLoss, CodeControlPlane, "selector", "The health check also selects machines that stay "+
		"with the old system, such as %s. The commit deletes the health check, so no health check covers these machines. "+
		"Create a health check of Cluster API that selects only these machines.", staying[0])
	return false
}

func (r *clusterAPIReader) checkSelector(f *fields) metav1.LabelSelector {
	const name = "selector"
	selector := readSelector(f.child(name))
	keys := keysOf(selector)
	f.reservedKey(name, keys)
	for _, key := range keys {
		if r.isOwn(key) {
			f.report(provider.FindingBlocker, CodeNotSupported, name, "The health check selects by the label %s, which the "+
				"old system wrote. Machinist's machines do not have it. Select by another label.", key)
		}
	}
	if len(keys) == 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector is empty. Select by a label of the machines.")
	}
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector is not valid.")
	}
	return selector
}

// startupTimeout reads how long a machine may have no Node. The default is 10 minutes, and 0 means no limit.
func (r *clusterAPIReader) startupTimeout(spec, checks *fields) *metav1.Duration {
	d, at, name := clusterAPIStartupTimeout, spec, "nodeStartupTimeout"
	if older := spec.duration(name); older != nil {
		d = *older
	} else if seconds := checks.number(name + "Seconds"); seconds != nil {
		d, at, name = time.Duration(*seconds)*time.Second, checks, name+"Seconds"
	}
	if d < 0 {
		at.report(provider.FindingBlocker, CodeInvalidValue, name, "The timeout must not be negative.")
	}
	if d <= 0 {
		return nil
	}
	return asDuration(d)
}

func (r *clusterAPIReader) remediation(spec, remediation *fields) v1beta1.RemediationType {
	result := v1beta1.RemediationReplace
	for at, name := range map[*fields]string{spec: "remediationTemplate", remediation: "templateRef"} {
		if value, found := at.get(name); found && !empty(value) {
			at.report(provider.FindingLoss, CodeExternalRemediation, name, "Another controller remediates unhealthy machines "+
				"with objects that Machinist does not create. The health check marks the machines. Change that controller to "+
				"remediate Machinist's machines.")
			result = v1beta1.RemediationExternal
		}
	}
	if _, paused := r.metadata.annotations[v1beta1.AnnotationClusterAPIPaused]; paused {
		delete(r.metadata.annotations, v1beta1.AnnotationClusterAPIPaused)
		r.metadata.report(provider.FindingNote, CodePausedCheck, "annotations."+v1beta1.AnnotationClusterAPIPaused, "The "+
			"health check is paused. Machinist's health check replaces no machines. To replace machines, set "+
			"remediation.type to %s.", result)
		result = v1beta1.RemediationNone
	}
	return result
}
