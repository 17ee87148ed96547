package source

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	// CodePausedCheck: the old health check did nothing for now.
	CodePausedCheck = "PausedCheck"
	// CodeExternalRemediation: another controller acts on unhealthy machines.
	CodeExternalRemediation = "ExternalRemediation"
)

// openshiftStartupTimeout is how long the old system waits for a Node where a check does not say it.
const openshiftStartupTimeout = 10 * time.Minute

func (r *openshiftReader) healthCheck() {
	f := r.fields
	if r.staysBehind(f.peek("spec").peek("selector").peek("matchLabels").strings()) {
		return
	}
	spec := f.child("spec")
	f.ignore("status")
	check := &v1beta1.MachineHealthCheck{}
	to := &check.Spec
	to.Selector = r.checkSelector(spec)
	conditions := nodeConditions{fields: spec, name: "unhealthyConditions"}
	for _, c := range spec.each("unhealthyConditions") {
		unhealthyCondition(c, &conditions)
	}
	to.UnhealthyNodeConditions = conditions.list
	to.MaxUnhealthy = maxUnhealthy(spec)
	to.NodeStartupTimeout = startupTimeout(spec)
	to.Remediation.Type = r.remediation(spec)
	r.metadata.apply(check)
	r.converted.Object = check
}

// checkSelector reads the selector of a check. It may be empty. What the old system wrote on machines is not on
// Machinist's, and without it the check would select more machines than before.
func (r *openshiftReader) checkSelector(f *fields) metav1.LabelSelector {
	const name = "selector"
	if _, found := f.get(name); !found {
		f.find(provider.FindingBlocker, CodeMissingField, name, "Without it the check would select all machines.")
	}
	selector := readSelector(f.child(name))
	keys := keysOf(selector)
	f.reservedKey(name, keys)
	workers := false
	for _, key := range keys {
		workers = workers || key == openshiftRole || key == openshiftType || key == openshiftMachineSet
		if r.isOwn(key) {
			f.find(provider.FindingBlocker, CodeNotSupported, name, "The check selects by %s, which the old system wrote and "+
				"Machinist's machines do not have. Select by another label.", key)
		}
	}
	if !workers {
		f.find(provider.FindingNote, CodeControlPlane, name, "If the check selects machines of the control plane as well, "+
			"they stay behind without it.")
	}
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		f.find(provider.FindingBlocker, CodeInvalidValue, name, "The selector is not valid.")
	}
	return selector
}

// unhealthyCondition reads one condition of a check.
func unhealthyCondition(f *fields, to *nodeConditions) {
	name, status, timeout := f.text("type"), corev1.ConditionStatus(f.text("status")), f.duration("timeout")
	switch {
	case name == "" || timeout == nil:
		f.find(provider.FindingBlocker, CodeMissingField, "type", "A condition needs a type, a status and a timeout.")
	case status != corev1.ConditionTrue && status != corev1.ConditionFalse && status != corev1.ConditionUnknown:
		f.find(provider.FindingBlocker, CodeInvalidValue, "status", "It must be True, False or Unknown.")
	case *timeout < 0:
		f.find(provider.FindingBlocker, CodeInvalidValue, "timeout", "It must not be negative.")
	default:
		to.add(name, *timeout, status)
	}
}

// maxUnhealthy reads how many machines may be unhealthy, and writes out the old system's default: all.
func maxUnhealthy(f *fields) *intstr.IntOrString {
	const name = "maxUnhealthy"
	if _, found := f.get(name); !found {
		return allMachines()
	}
	most := f.numberOrPercentage(name, 0)
	if most.Type == intstr.String && !isZero(most) && most.StrVal != "100%" {
		f.find(provider.FindingNote, CodeBounded, name, "It is rounded down, but to no less than one machine; the old "+
			"system rounded to none.")
	}
	return most
}

// startupTimeout reads how long a machine may be without a Node: 10 minutes by default, without end if it is 0.
func startupTimeout(f *fields) *metav1.Duration {
	const name = "nodeStartupTimeout"
	d := or(f.duration(name), openshiftStartupTimeout)
	if d < 0 {
		f.find(provider.FindingBlocker, CodeInvalidValue, name, "It must not be negative.")
	}
	if d <= 0 {
		return nil
	}
	return asDuration(d)
}

// remediation reads what is done with unhealthy machines.
func (r *openshiftReader) remediation(f *fields) v1beta1.RemediationType {
	const template = "remediationTemplate"
	const message = "Another controller acts on unhealthy machines, by objects that Machinist does not make. The check " +
		"marks the machines; that controller must learn to act on Machinist's."
	result := v1beta1.RemediationReplace
	if _, found := f.get(template); found {
		f.find(provider.FindingLoss, CodeExternalRemediation, template, message)
		result = v1beta1.RemediationExternal
	}
	if r.metadata.oldAnnotations[openshiftStrategy] != "" {
		r.metadata.find(provider.FindingLoss, CodeExternalRemediation, "annotations."+openshiftStrategy, message)
		result = v1beta1.RemediationExternal
	}
	if _, paused := r.metadata.annotations[v1beta1.AnnotationClusterAPIPaused]; paused {
		delete(r.metadata.annotations, v1beta1.AnnotationClusterAPIPaused)
		r.metadata.find(provider.FindingNote, CodePausedCheck, "annotations."+v1beta1.AnnotationClusterAPIPaused, "The check "+
			"is paused. Machinist's replaces nothing; set remediation.type to %s to go on.", result)
		result = v1beta1.RemediationNone
	}
	return result
}
