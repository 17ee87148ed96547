package api

import (
	"maps"
	"math"
	"testing"

	"machinist.dev/machinist/test/manifests"
)

func TestReplicas(t *testing.T) {
	replicas := func(value any) []change { return []change{{"spec/replicas", value}} }
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		requireAdmitted(t, []valid{
			{kind + " of 0", sample, replicas(0)},
			{kind + " of 100000", sample, replicas(100000)},
			{kind + " with a deletePolicy", sample, []change{{"spec/deletePolicy", "Oldest"}}},
			{kind + " with an empty providerID in its template", sample, []change{{"spec/template/spec/providerID", ""}}},
		})
	}
}

func TestPlacements(t *testing.T) {
	placement := func(fields map[string]any) []change {
		domain := map[string]any{"name": "zone-a", "options": []any{map[string]any{"className": "small-a"}}}
		maps.Copy(domain, fields)
		return []change{{"spec/placement", map[string]any{"domains": []any{domain}}}, {"spec/template/spec/classRef", nil}}
	}
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		requireAdmitted(t, []valid{
			{kind + " with one domain", sample, placement(nil)},
			{kind + " with a domain without new machines", sample, placement(map[string]any{"weight": 0})},
			{kind + " with bounds", sample, placement(map[string]any{"minReplicas": 2, "maxReplicas": 2})},
			{kind + " with a domain without machines", sample, placement(map[string]any{"maxReplicas": 0})},
		})
	}
}

func TestSelectors(t *testing.T) {
	selector := func(value any) []change { return []change{{"spec/selector", value}} }
	expression := func(key, operator string, values ...string) []change {
		e := map[string]any{"key": key, "operator": operator}
		if len(values) > 0 {
			e["values"] = values
		}
		return selector(map[string]any{"matchExpressions": []any{e}})
	}
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		requireAdmitted(t, []valid{
			{kind + " In", sample, expression("pool", "In", "a", "b")},
			{kind + " NotIn", sample, expression("pool", "NotIn", "b")},
			{kind + " NotIn of another key", sample, expression("tier", "NotIn", "a")},
			{kind + " Exists", sample, expression("pool", "Exists")},
			{kind + " DoesNotExist", sample, expression("tier", "DoesNotExist")},
		})
	}
}

func TestStrategy(t *testing.T) {
	rolling := func(surge, unavailable any) []change {
		return []change{{"spec/strategy/rollingUpdate/maxSurge", surge}, {"spec/strategy/rollingUpdate/maxUnavailable",
			unavailable}}
	}
	requireAdmitted(t, []valid{
		{"numbers", deployment, rolling(3, 2)},
		{"percentages", deployment, rolling("25%", "10%")},
		{"100 percent", deployment, rolling("100%", "100%")},
		{"2^31-1", deployment, rolling(math.MaxInt32, 0)},
		{"only unavailable", deployment, rolling(0, 1)},
		{"partition", deployment, []change{{"spec/strategy/rollingUpdate/partition", 100000}}},
		{"pause", deployment, []change{{"spec/strategy/rollingUpdate/pauseAfter", map[string]any{"machines": 1}}}},
		{"pause with a duration", deployment, []change{{"spec/strategy/rollingUpdate/pauseAfter",
			map[string]any{"machines": 1, "duration": "1h30m"}}}},
		{"OnDelete", deployment, []change{{"spec/strategy/type", "OnDelete"}}},
		{"in place", deployment, []change{{"spec/strategy",
			map[string]any{"type": "InPlace", "inPlace": map[string]any{"maxUnavailable": "20%", "orchestration": "Manual"}}}}},
		{"no remediation", deployment, []change{{"spec/remediation/maxInFlight", 0}}},
		{"remediation in percent", deployment, []change{{"spec/remediation/maxInFlight", "20%"}}},
		{"no remediation by a set", set, []change{{"spec/remediation/maxInFlight", 0}}},
		{"remediation by a set in percent", set, []change{{"spec/remediation/maxInFlight", "20%"}}},
		{"steps", deployment, []change{{"spec/versionSteps", []any{map[string]any{"version": "v1.34.11"},
			map[string]any{"version": "v1.35.4", "className": "small-35"}}}, {"spec/template/spec/version", "v1.36.3"}}},
		{"no steps", deployment, []change{{"spec/versionSteps", []any{}}}},
		{"steps to a later major version", deployment, []change{{"spec/versionSteps", []any{map[string]any{"version": "v1.35.4"}}},
			{"spec/template/spec/version", "v2.0.0"}}},
		{"no history", deployment, []change{{"spec/revisionHistoryLimit", 0}}},
	})
}

func TestHealthCheck(t *testing.T) {
	condition := func(name, status string, timeout any) []change {
		return []change{{"spec/unhealthyNodeConditions",
			[]any{map[string]any{"type": name, "status": status, "timeout": timeout}}}}
	}
	requireAdmitted(t, []valid{
		{"with an empty selector", healthCheck, []change{{"spec/selector", map[string]any{}}}},
		{"maxUnhealthy as a number", healthCheck, []change{{"spec/maxUnhealthy", 3}}},
		{"range", healthCheck, []change{{"spec/unhealthyRange", "[3-5]"}}},
		{"range of one number", healthCheck, []change{{"spec/unhealthyRange", "[0-0]"}}},
		{"the largest range", healthCheck, []change{{"spec/unhealthyRange", "[0-999999999]"}}},
		{"condition", healthCheck, condition("DiskPressure", "True", "10m")},
		{"machine condition", healthCheck, []change{{"spec/unhealthyMachineConditions",
			[]any{map[string]any{"type": "example.com/GPUHealthy", "status": "False", "timeout": "0s"}}}}},
		{"remediation", healthCheck, []change{{"spec/remediation/type", "External"}, {"spec/remediation/maxRetries", 3}}},
		{"remediation template", healthCheck, []change{{"spec/remediation", map[string]any{"type": "External",
			"timeout": "10m", "onTimeout": "Replace", "templateRef": map[string]any{"apiVersion": "fencing.example.com/v1",
				"kind": "PowerCycleTemplate", "namespace": "fencing", "name": "power.cycle-1"}}}}},
		{"reboot", healthCheck, []change{{"spec/remediation/type", "Reboot"}, {"spec/remediation/reboot/maxAttempts", 10},
			{"spec/remediation/reboot/timeout", "5m"}}},
	})
}

func TestDisruptionBudget(t *testing.T) {
	spec := func(field string, value any) []change { return []change{{"spec/" + field, value}} }
	window := func(duration string) []change {
		return spec("windows", []any{map[string]any{"schedule": "0 22 * * 1-5", "timeZone": "Europe/Berlin",
			"duration": duration}})
	}
	requireAdmitted(t, []valid{
		{"with an empty selector", budget, spec("selector", map[string]any{})},
		{"no disruption", budget, spec("maxDisrupted", 0)},
		{"2^31-1", budget, spec("maxDisrupted", math.MaxInt32)},
		{"in percent", budget, spec("maxDisrupted", "100%")},
		{"every reason", budget, spec("reasons", []any{"Remediation", "Replace", "Rollout", "InPlaceUpdate", "Expiry", "Rebalance"})},
		{"the shortest window", budget, window("1m")},
		{"the longest window", budget, window("168h")},
		{"outside of windows", budget, append(window("8h"), spec("apply", "Outside")...)},
	})
}

func labels(key, value string) map[string]any { return manifests.MatchLabels(key, value) }
