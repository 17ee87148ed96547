package source

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	sapcloudHealthTimeout  = 10 * time.Minute
	sapcloudNodeConditions = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"
)

// sapcloudHealth holds the conditions of a Node for which the old system replaces its machine.
type sapcloudHealth struct {
	disabled   bool
	timeout    time.Duration
	conditions []v1beta1.UnhealthyNodeCondition
}

// health reads the health settings of a machine. A missing setting comes from the old system's flags or defaults.
func (r *sapcloudReader) health(f *fields) sapcloudHealth {
	h := sapcloudHealth{disabled: f.boolean("disableHealthTimeout"), timeout: sapcloudHealthTimeout}
	if d := r.flags.duration(sapcloudHealthFlag, r.fields); d != nil {
		h.timeout = *d
	}
	if d := f.duration("healthTimeout"); d != nil && *d < 0 {
		f.report(provider.FindingBlocker, CodeInvalidValue, "healthTimeout", "The timeout must not be negative.")
	} else if d != nil {
		h.timeout = *d
	}
	types := sapcloudNodeConditions
	if flag := r.flags[sapcloudConditionsFlag]; flag != "" {
		types = flag
	}
	if _, found := f.get("nodeConditions"); found {
		types = f.text("nodeConditions") // Even an empty list replaces the default.
	}
	// A healthy Node has the condition Ready and none of the other conditions, each of which names a problem.
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

// check returns the health check for a deployment or set. The old system replaces one unhealthy machine at a time,
// however many there are.
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
