package why

import (
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// Rules: max-unhealthy-stops-remediation, deleted-node-replaced-at-once.
func TestExplainReportsThatBuiltInPolicyStops(t *testing.T) {
	silent := machine(phase(v1beta1.MachineUnhealthy), no(v1beta1.ConditionReady, v1beta1.ReasonNodeUnresponsive, "",
		time.Minute),
		no(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeUnresponsive, "", time.Minute))
	explain := func(m *v1beta1.Machine, others ...v1beta1.Machine) []Finding {
		return Explain(Facts{Now: now, Machine: m, Provider: running, UncheckedMachines: append(others, *m)})
	}
	mustReport(t, explain(silent, *silent), "machine/web-1", v1beta1.ReasonTooManyUnhealthy,
		"2 of the 2 machines", "at most 1 of them may be unhealthy", "kubectl annotate machines.machinist.dev web-1 -n prod machinist.dev/remediate=")
	for _, f := range explain(silent, *machine()) {
		if f.Reason == v1beta1.ReasonTooManyUnhealthy {
			t.Errorf("one unhealthy machine of two is not replaced: %+v", f)
		}
	}
	gone := machine(phase(v1beta1.MachineUnhealthy), no(v1beta1.ConditionReady, v1beta1.ReasonNodeGone, "", time.Minute),
		no(v1beta1.ConditionRegistered, v1beta1.ReasonNodeGone, "", time.Minute),
		no(v1beta1.ConditionNodeHealthy, v1beta1.ReasonNodeGone, "", time.Minute))
	mustReport(t, explain(gone, *machine()), "machine/web-1", v1beta1.ReasonNodeGone, "requests its replacement at once",
		"kubectl annotate machines.machinist.dev web-1 -n prod machinist.dev/skip-remediation=")
}

func TestDefaultMaxUnhealthyMatchesTheAPI(t *testing.T) {
	if v1beta1.DefaultMaxUnhealthy != "40%" || defaultMaxUnhealthy != 40 {
		t.Errorf("the default in the API is %s, and in why %d%%", v1beta1.DefaultMaxUnhealthy, defaultMaxUnhealthy)
	}
}
