package source

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// How the old system judges machines where neither a template nor a flag says it.
const (
	sapcloudHealthTimeout  = 10 * time.Minute
	sapcloudNodeConditions = "KernelDeadlock,ReadonlyFilesystem,DiskPressure,NetworkUnavailable"
)

// sapcloudHealth is when the old system replaces a machine because of its Node.
type sapcloudHealth struct {
	disabled   bool
	timeout    time.Duration
	conditions []v1beta1.UnhealthyNodeCondition
}

// health reads how machines are judged: by the machine's own settings, else by flags.
func (r *sapcloudReader) health(f *fields) sapcloudHealth {
	h := sapcloudHealth{disabled: f.flag("disableHealthTimeout"), timeout: sapcloudHealthTimeout}
	if d := r.flags.duration("machine-health-timeout", r.fields); d != nil {
		h.timeout = *d
	}
	if d := f.duration("healthTimeout"); d != nil && *d < 0 {
		f.find(provider.FindingBlocker, CodeInvalidValue, "healthTimeout", "It must not be negative.")
	} else if d != nil {
		h.timeout = *d
	}
	types := sapcloudNodeConditions
	if flag := r.flags["node-conditions"]; flag != "" {
		types = flag
	}
	if _, found := f.get("nodeConditions"); found {
		types = f.text("nodeConditions") // An empty list counts.
	}
	// A Node is healthy if it is Ready and all the others are False: they are names of troubles.
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

// check returns the health check of a deployment or set. The old system replaces unhealthy machines however many they
// are, one at a time.
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
