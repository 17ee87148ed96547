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
	// CodePausedCheck: the old health check is paused.
	CodePausedCheck = "PausedCheck"
	// CodeExternalRemediation: another controller remediates unhealthy machines.
	CodeExternalRemediation = "ExternalRemediation"
)

const openshiftStartupTimeout = 10 * time.Minute

func (r *openshiftReader) healthCheck() {
	f := r.fields
	if r.staysWithOldSystem(f.peek("spec").peek("selector").peek("matchLabels").stringFields()) {
		return
	}
	if r.ownedByOperator() {
		return
	}
	spec := f.child("spec")
	f.ignore("status")
	check := &v1beta1.MachineHealthCheck{}
	to := &check.Spec
	to.Selector = r.checkSelector(spec)
	conditions := nodeConditions{fields: spec, name: "unhealthyConditions"}
	for _, c := range spec.objects("unhealthyConditions") {
		unhealthyCondition(c, &conditions)
	}
	to.UnhealthyNodeConditions = conditions.list
	to.MaxUnhealthy = maxUnhealthy(spec, "maxUnhealthy")
	to.NodeStartupTimeout = startupTimeout(spec)
	to.Remediation.Type = r.remediation(spec)
	r.metadata.apply(check)
	r.converted.Object = check
}

// ownedByOperator reports whether an operator restores the health check. Such a health check is not converted.
func (r *openshiftReader) ownedByOperator() bool {
	switch operator := r.restoredBy(); {
	case r.metadata.oldName == openshiftTerminationCheck:
		r.leaveBehind(CodeOperatorOwned, "The health check stays with the old system, because the cluster-version "+
			"operator restores it. Machinist handles interruptions of instances without a health check.")
	case operator != "":
		r.leaveBehind(CodeOperatorOwned, "The health check stays with the old system, because "+operator+" restores "+
			"it. To check Machinist's machines in the same way, create a MachineHealthCheck of Machinist.")
	default:
		return false
	}
	return true
}

// checkSelector reads the selector of a health check, which may be empty. Machinist's machines lack the labels that
// the old system wrote. Without these labels in the selector, the health check would select more machines than
// before.
func (r *openshiftReader) checkSelector(f *fields) metav1.LabelSelector {
	const name = "selector"
	if _, found := f.get(name); !found {
		f.report(provider.FindingBlocker, CodeMissingField, name, "Without a selector, the health check would select all "+
			"machines.")
	}
	selector := readSelector(f.child(name))
	keys := keysOf(selector)
	f.reservedKey(name, keys)
	workers := false
	for _, key := range keys {
		workers = workers || key == openshiftRole || key == openshiftType || key == openshiftMachineSet
		if r.isOwn(key) {
			f.report(provider.FindingBlocker, CodeNotSupported, name, "The health check selects by the label %s, which the "+
				"old system wrote. Machinist's machines do not have it. Select by another label.", key)
		}
	}
	if !workers {
		f.report(provider.FindingNote, CodeControlPlane, name, "If the health check also selects machines of the control "+
			"plane, these stay with the old system without this health check.")
	}
	if _, err := metav1.LabelSelectorAsSelector(&selector); err != nil {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The selector is not valid.")
	}
	return selector
}

func unhealthyCondition(f *fields, to *nodeConditions) {
	name, status, timeout := f.text("type"), corev1.ConditionStatus(f.text("status")), f.duration("timeout")
	if seconds := f.number("timeoutSeconds"); seconds != nil && timeout == nil {
		d := time.Duration(*seconds) * time.Second
		timeout = &d
	}
	switch {
	case name == "" || timeout == nil:
		f.report(provider.FindingBlocker, CodeMissingField, "type", "A condition needs a type, a status and a timeout.")
	case status != corev1.ConditionTrue && status != corev1.ConditionFalse && status != corev1.ConditionUnknown:
		f.report(provider.FindingBlocker, CodeInvalidValue, "status", "The status must be True, False or Unknown.")
	case *timeout < 0:
		f.report(provider.FindingBlocker, CodeInvalidValue, "timeout", "The timeout must not be negative.")
	default:
		to.add(name, *timeout, status)
	}
}

// maxUnhealthy reads the maximum number of unhealthy machines. By default, all machines may be unhealthy at the same
// time.
func maxUnhealthy(f *fields, name string) *intstr.IntOrString {
	if _, found := f.get(name); !found {
		return allMachines()
	}
	most := f.numberOrPercentage(name, 0)
	if most.Type == intstr.String && !isZero(most) && most.StrVal != "100%" {
		f.report(provider.FindingNote, CodeBounded, name, "Machinist rounds the percentage down, but to at least one "+
			"machine. The old system rounded it down to 0.")
	}
	return most
}

// startupTimeout reads how long a machine may have no Node. The default is 10 minutes, and 0 means no limit.
func startupTimeout(f *fields) *metav1.Duration {
	const name = "nodeStartupTimeout"
	d := valueOr(f.duration(name), openshiftStartupTimeout)
	if d < 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, name, "The timeout must not be negative.")
	}
	if d <= 0 {
		return nil
	}
	return asDuration(d)
}

func (r *openshiftReader) remediation(f *fields) v1beta1.RemediationType {
	const template = "remediationTemplate"
	const message = "Another controller remediates unhealthy machines with objects that Machinist does not create. " +
		"The health check marks the machines. Change that controller to remediate Machinist's machines."
	result := v1beta1.RemediationReplace
	if _, found := f.get(template); found {
		f.report(provider.FindingLoss, CodeExternalRemediation, template, message)
		result = v1beta1.RemediationExternal
	}
	if r.metadata.oldAnnotations[openshiftStrategy] != "" {
		r.metadata.report(provider.FindingLoss, CodeExternalRemediation, "annotations."+openshiftStrategy, message)
		result = v1beta1.RemediationExternal
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
