package source

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// These are the old system's default settings for the health of machines.
const (
	sapcloudHealthTimeout  = 10 * time.Minute
	sapcloudNodeConditions = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"
)

// sapcloudHealth contains the conditions of a Node for which the old system replaces a machine.
type sapcloudHealth struct {
	disabled   bool
	timeout    time.Duration
	conditions []v1beta1.UnhealthyNodeCondition
}

// health reads the health settings of a machine. If a machine lacks a setting, health uses the flag of the old system.
// If the flag is not set either, health uses the default.
func (r *sapcloudReader) health(f *fields) sapcloudHealth {
	h := sapcloudHealth{disabled: f.boolean("disableHealthTimeout"), timeout: sapcloudHealthTimeout}
	if d := r.flags.duration("machine-health-timeout", r.fields); d != nil {
		h.timeout = *d
	}
	if d := f.duration("healthTimeout"); d != nil && *d < 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, "healthTimeout", "The timeout must not be negative.")
	} else if d != nil {
		h.timeout = *d
	}
	types := sapcloudNodeConditions
	if flag := r.flags["node-conditions"]; flag != "" {
		types = flag
	}
	if _, found := f.get("nodeConditions"); found {
		types = f.text("nodeConditions") // Even an empty list replaces the default.
	}
	// A Node is healthy if its condition Ready is True and all other listed conditions are False, because each of these
	// conditions names a problem.
	all := nodeConditions{fields: f, name: "nodeConditions"}
	all.add(string(corev1.NodeReady), h.timeout, corev1.ConditionFalse, corev1.ConditionUnknown)
	for name := range strings.SplitSeq(types, ",") {
		if name != "" {
			all.add(name, h.timeout, corev1.ConditionTrue, corev1.ConditionUnknown)
		}
	}
	h.conditions = all.list
	return h
}

// check returns the new health check for a deployment or set. The old system has no limit for the number of unhealthy
// machines, and replaces one unhealthy machine at a time.
func (h sapcloudHealth) check(name string, selector metav1.LabelSelector) *v1beta1.MachineHealthCheck {
	if h.disabled {
		return noRemediation(name, selector)
	}
	check := &v1beta1.MachineHealthCheck{}
	check.Name = name
	check.Spec.Selector = *selector.DeepCopy()
	check.Spec.UnhealthyNodeConditions = h.conditions
	check.Spec.MaxUnhealthy = allMachines()
	check.Spec.Remediation.Type = v1beta1.RemediationReplace
	return check
}
