package api

import (
	"math"
	"testing"
)

func TestReplicas(t *testing.T) {
	replicas := func(value any) []change { return []change{{"spec/replicas", value}} }
	const field = "spec.replicas"
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		judge(t, []verdict{
			{kind + " of 0", sample, replicas(0), nil},
			{kind + " of 100000", sample, replicas(100000), nil},
			{kind + " of 100001", sample, replicas(100001), []string{field}},
			{kind + " of 2^31-1", sample, replicas(math.MaxInt32), []string{field}},
			{kind + " of 2^63-1", sample, replicas(int64(math.MaxInt64)), []string{field}},
			{kind + " of -1", sample, replicas(-1), []string{field}},
			{kind + " of a half", sample, replicas(0.5), []string{field}},
			{kind + " of a string", sample, replicas("3"), []string{field}},
			{kind + " with minReadySeconds of -1", sample, []change{{"spec/minReadySeconds", -1}}, []string{"spec.minReadySeconds"}},
			{kind + " with a deletePolicy", sample, []change{{"spec/deletePolicy", "Oldest"}}, nil},
			{kind + " with a deletePolicy that is none", sample, []change{{"spec/deletePolicy", "Cheapest"}}, []string{"spec.deletePolicy"}},
			{kind + " with a providerID in its template", sample, []change{{"spec/template/spec/providerID", "sim:///vm-1"}}, []string{"spec.template.spec.providerID"}},
			{kind + " with an empty providerID in its template", sample, []change{{"spec/template/spec/providerID", ""}}, nil},
			{kind + " without a template", sample, []change{{"spec/template", nil}}, []string{"spec.template"}},
			{kind + " without a class", sample, []change{{"spec/template/spec", map[string]any{}}}, []string{"spec.template.spec", "exactly one of classRef and provider"}},
			{kind + " without a spec", sample, []change{{"spec", nil}}, []string{"spec"}},
			{kind + " with a template label value that is none", sample, []change{{"spec/template/metadata/labels/tier", "a b"}}, []string{"spec.template.metadata.labels.tier"}},
			{kind + " with a template label key that is none", sample, []change{{"spec/template/metadata/labels/a b", "x"}}, []string{"spec.template.metadata.labels"}},
			{kind + " with a template annotation key that is none", sample, []change{{"spec/template/metadata/annotations/a b", "x"}}, []string{"spec.template.metadata.annotations"}},
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
	const field = "spec.selector"
	for kind, sample := range map[string]string{"set": set, "deployment": deployment} {
		judge(t, []verdict{
			{kind + " without", sample, selector(nil), []string{field}},
			{kind + " empty", sample, selector(map[string]any{}), []string{field, "empty"}},
			{kind + " with empty parts", sample, selector(map[string]any{"matchLabels": map[string]any{}, "matchExpressions": []any{}}), []string{field, "empty"}},
			{kind + " with another value", sample, selector(labels("pool", "b")), []string{field, "matchLabels"}},
			{kind + " with another key", sample, selector(labels("tier", "a")), []string{field, "matchLabels"}},
			{kind + " with another key without a value", sample, selector(labels("tier", "")), []string{field, "matchLabels"}},
			{kind + " of a template without labels", sample, []change{{"spec/template/metadata", nil}}, []string{field, "matchLabels"}},
			{kind + " with a value that is none", sample, selector(labels("pool", "a b")), []string{"spec.selector.matchLabels.pool"}},
			{kind + " with a key that is none", sample, selector(labels("my pool", "a")), []string{"spec.selector.matchLabels"}},
			{kind + " In", sample, expression("pool", "In", "a", "b"), nil},
			{kind + " In others", sample, expression("pool", "In", "b", "c"), []string{field, "matchExpressions"}},
			{kind + " In of another key", sample, expression("tier", "In", "a"), []string{field, "matchExpressions"}},
			{kind + " In without values", sample, expression("pool", "In"), []string{"spec.selector.matchExpressions[0].values"}},
			{kind + " NotIn", sample, expression("pool", "NotIn", "b"), nil},
			{kind + " NotIn itself", sample, expression("pool", "NotIn", "a"), []string{field, "matchExpressions"}},
			{kind + " NotIn of another key", sample, expression("tier", "NotIn", "a"), nil},
			{kind + " Exists", sample, expression("pool", "Exists"), nil},
			{kind + " Exists with values", sample, expression("pool", "Exists", "a"), []string{"spec.selector.matchExpressions[0].values"}},
			{kind + " Exists of another key", sample, expression("tier", "Exists"), []string{field, "matchExpressions"}},
			{kind + " DoesNotExist", sample, expression("tier", "DoesNotExist"), nil},
			{kind + " DoesNotExist itself", sample, expression("pool", "DoesNotExist"), []string{field, "matchExpressions"}},
			{kind + " with an operator that is none", sample, expression("pool", "Equals", "a"), []string{"spec.selector.matchExpressions[0].operator"}},
			{kind + " with an expression key that is none", sample, expression("my pool", "Exists"), []string{"spec.selector.matchExpressions[0].key"}},
		})
	}
}

func TestStrategy(t *testing.T) {
	rolling := func(surge, unavailable any) []change {
		return []change{{"spec/strategy/rollingUpdate/maxSurge", surge}, {"spec/strategy/rollingUpdate/maxUnavailable", unavailable}}
	}
	const surge, unavailable = "spec.strategy.rollingUpdate.maxSurge", "spec.strategy.rollingUpdate.maxUnavailable"
	judge(t, []verdict{
		{"numbers", deployment, rolling(3, 2), nil},
		{"percentages", deployment, rolling("25%", "10%"), nil},
		{"100 percent", deployment, rolling("100%", "100%"), nil},
		{"2^31-1", deployment, rolling(math.MaxInt32, 0), nil},
		{"2^31", deployment, rolling(math.MaxInt32+1, 0), []string{surge}},
		{"both 0", deployment, rolling(0, 0), []string{unavailable, "both be 0"}},
		{"both 0 in percent", deployment, rolling("0%", "0%"), []string{unavailable, "both be 0"}},
		{"0 and 0%", deployment, rolling(0, "0%"), []string{unavailable, "both be 0"}},
		{"no surge, unavailable left to its default", deployment, rolling(0, nil), []string{unavailable, "both be 0"}},
		{"only unavailable", deployment, rolling(0, 1), nil},
		{"negative surge", deployment, rolling(-1, 1), []string{surge}},
		{"negative unavailable", deployment, rolling(1, -1), []string{unavailable}},
		{"negative percentage", deployment, rolling("-1%", 1), []string{surge}},
		{"101 percent", deployment, rolling(1, "101%"), []string{unavailable}},
		{"1000 percent", deployment, rolling("1000%", 1), []string{surge}},
		{"a fraction of a percent", deployment, rolling("1.5%", 1), []string{surge}},
		{"a number as a string", deployment, rolling("1", 1), []string{surge}},
		{"words", deployment, rolling("some", 1), []string{surge}},
		{"a fraction", deployment, rolling(0.5, 1), []string{surge}},
		{"a type that is none", deployment, []change{{"spec/strategy/type", "BlueGreen"}}, []string{"spec.strategy.type"}},
		{"OnDelete", deployment, []change{{"spec/strategy/type", "OnDelete"}}, nil},
		{"in place", deployment, []change{{"spec/strategy", map[string]any{"type": "InPlace", "inPlace": map[string]any{"maxUnavailable": "20%", "orchestration": "Manual"}}}}, nil},
		{"in place with an orchestration that is none", deployment, []change{{"spec/strategy/inPlace/orchestration", "Choir"}}, []string{"spec.strategy.inPlace.orchestration"}},
		{"in place with a negative number", deployment, []change{{"spec/strategy/inPlace/maxUnavailable", -1}}, []string{"spec.strategy.inPlace.maxUnavailable"}},
		{"no remediation", deployment, []change{{"spec/remediation/maxInFlight", 0}}, nil},
		{"remediation in percent", deployment, []change{{"spec/remediation/maxInFlight", "20%"}}, nil},
		{"remediation over 100 percent", deployment, []change{{"spec/remediation/maxInFlight", "200%"}}, []string{"spec.remediation.maxInFlight"}},
		{"negative history", deployment, []change{{"spec/revisionHistoryLimit", -1}}, []string{"spec.revisionHistoryLimit"}},
		{"no history", deployment, []change{{"spec/revisionHistoryLimit", 0}}, nil},
	})
}

func TestHealthCheck(t *testing.T) {
	condition := func(name, status string, timeout any) []change {
		return []change{{"spec/unhealthyNodeConditions", []any{map[string]any{"type": name, "status": status, "timeout": timeout}}}}
	}
	judge(t, []verdict{
		{"without a selector", healthCheck, []change{{"spec/selector", nil}}, []string{"spec.selector"}},
		{"with an empty selector", healthCheck, []change{{"spec/selector", map[string]any{}}}, nil},
		{"with a selector that is none", healthCheck, []change{{"spec/selector", labels("my pool", "a")}}, []string{"spec.selector.matchLabels"}},
		{"maxUnhealthy as a number", healthCheck, []change{{"spec/maxUnhealthy", 3}}, nil},
		{"maxUnhealthy over 100 percent", healthCheck, []change{{"spec/maxUnhealthy", "101%"}}, []string{"spec.maxUnhealthy"}},
		{"negative maxUnhealthy", healthCheck, []change{{"spec/maxUnhealthy", -1}}, []string{"spec.maxUnhealthy"}},
		{"condition", healthCheck, condition("DiskPressure", "True", "10m"), nil},
		{"condition without a timeout", healthCheck, condition("Ready", "False", nil), []string{"spec.unhealthyNodeConditions[0].timeout"}},
		{"condition with a status that is none", healthCheck, condition("Ready", "Maybe", "1m"), []string{"spec.unhealthyNodeConditions[0].status"}},
		{"condition without a type", healthCheck, condition("", "True", "1m"), []string{"spec.unhealthyNodeConditions[0].type"}},
		{"condition with a timeout in words", healthCheck, condition("Ready", "True", "10 minutes"), []string{"spec.unhealthyNodeConditions[0].timeout"}},
		{"remediation", healthCheck, []change{{"spec/remediation/type", "External"}, {"spec/remediation/maxRetries", 3}}, nil},
		{"remediation that is none", healthCheck, []change{{"spec/remediation/type", "Reboot"}}, []string{"spec.remediation.type"}},
		{"negative maxRetries", healthCheck, []change{{"spec/remediation/maxRetries", -1}}, []string{"spec.remediation.maxRetries"}},
	})
}

func labels(key, value string) map[string]any {
	return map[string]any{"matchLabels": map[string]any{key: value}}
}
