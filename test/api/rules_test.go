package api

import (
	"maps"
	"strings"
	"testing"

	"machinist.dev/machinist/test/manifests"
)

type valid struct {
	name    string
	sample  string
	changes []change
}

func requireAdmitted(t *testing.T, all []valid) {
	t.Helper()
	for _, test := range all {
		t.Run(test.name, func(t *testing.T) {
			if err := tryCreate(t, apply(t, parse(t, "default", test.sample), test.changes...)); err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestSamplesAreAdmitted(t *testing.T) {
	for _, sample := range manifests.Samples() {
		if err := tryCreate(t, parse(t, "default", sample)); err != nil {
			t.Errorf("%s: %v", sample, err)
		}
	}
}

func TestNames(t *testing.T) {
	name := func(value string) []change { return []change{{"metadata/name", value}} }
	a := func(n int) string { return strings.Repeat("a", n) }
	requireAdmitted(t, []valid{
		{"machine of 1 character", machine, name("x")},
		{"machine of 63", machine, name(a(63))},
		{"set of 57", set, name(a(57))},
		{"deployment of 1 character", deployment, name("x")},
		{"deployment of 47", deployment, name(a(47))},
		{"class with dots", class, name("a.b")},
	})
}

func TestMachineSpec(t *testing.T) {
	spec := func(field string, value any) []change { return []change{{"spec/" + field, value}} }
	requireAdmitted(t, []valid{
		{"inline with both references", inlineMachine, []change{{"spec/credentialsRef", ref("cloud")},
			{"spec/userDataRef", ref("boot")}}},
		{"providerSpec of 1 MiB", inlineMachine, spec("providerSpec", map[string]any{"blob": strings.Repeat("x", 1<<20)})},
		{"version", machine, spec("version", "v1.36.3")},
		{"version with a build", machine, spec("version", "v1.36.3-rc.1+k3s1")},
		{"providerID", machine, spec("providerID", "sim:///zone-a/vm-1")},
		{"empty providerID", machine, spec("providerID", "")},
	})
}

func TestDurations(t *testing.T) {
	drain := func(value any) []change { return []change{{"spec/timeouts/drain", value}} }
	requireAdmitted(t, []valid{
		{"minutes", machine, drain("90m")},
		{"hours and minutes", machine, drain("1h30m")},
		{"format of Go", machine, drain("1h30m0.5s")},
		{"fraction", machine, drain("1.5h")},
		{"milliseconds", machine, drain("300ms")},
		{"zero", machine, drain("0s")},
		{"progressDeadline longer than minReadySeconds", deployment, []change{{"spec/progressDeadline", "61s"},
			{"spec/minReadySeconds", 60}}},
	})
}

func TestTimes(t *testing.T) {
	after := func(value any) []change { return []change{{"spec/rolloutAfter", value}} }
	requireAdmitted(t, []valid{
		{"UTC", deployment, after("2026-08-01T12:00:00Z")},
		{"with an offset", deployment, after("2026-08-01T12:00:00.123+02:00")},
		{"29th of February", deployment, after("2028-02-29T12:00:00Z")},
	})
}

func TestNodeTemplate(t *testing.T) {
	node := func(field string, value any) []change { return []change{{"spec/node/" + field, value}} }
	taint := func(key, value, effect string) map[string]any {
		return map[string]any{"key": key, "value": value, "effect": effect}
	}
	requireAdmitted(t, []valid{
		{"labels", machine, node("labels", map[string]any{"pool": "a", "example.com/tier": ""})},
		{"annotation", machine, node("annotations", map[string]any{"example.com/note": "größer 🚀 <<MACHINE_NAME>>"})},
		{"taint", machine, node("taints", []any{taint("example.com/gpu", "yes", "NoSchedule")})},
		{"taint with two effects", machine,
			node("taints", []any{taint("gpu", "", "NoSchedule"), taint("gpu", "", "NoExecute")})},
		{"readiness gates", machine, node("readinessGates", []any{map[string]any{"conditionType": "NetworkReady"},
			map[string]any{"conditionType": "example.com/GPUReady"}})},
		{"hook", machine, []change{{"spec/lifecycleHooks/preDrain", []any{hook("backup.example.com/flush", "backup")}}}},
	})
}

func TestDrainRules(t *testing.T) {
	rule := func(name string, fields map[string]any) map[string]any {
		all := map[string]any{"name": name, "podSelector": map[string]any{}, "behavior": "Drain"}
		maps.Copy(all, fields)
		return all
	}
	rules := func(all ...any) []change { return []change{{"spec/drain/rules", all}} }
	expressions := []any{map[string]any{"key": "app", "operator": "In", "values": []any{"web", "db"}},
		map[string]any{"key": "example.com/tier", "operator": "Exists"}}
	var most []any
	for i := range 32 {
		most = append(most, rule(strings.Repeat("a", i+1), nil))
	}
	requireAdmitted(t, []valid{
		{"an empty rule for all pods", machine, rules(rule("all", nil))},
		{"the lowest order", machine, rules(rule("first", map[string]any{"order": -1 << 31}))},
		{"the highest order", machine, rules(rule("last", map[string]any{"order": 1<<31 - 1}))},
		{"skip", machine, rules(rule("agents", map[string]any{"behavior": "Skip",
			"podSelector": map[string]any{"matchLabels": map[string]any{"app": "agent"}}}))},
		{"expressions", machine, rules(rule("jobs", map[string]any{"behavior": "WaitCompleted",
			"podSelector":       map[string]any{"matchExpressions": expressions},
			"namespaceSelector": map[string]any{"matchExpressions": expressions}}))},
		{"the most rules", machine, rules(most...)},
		{"pods with volumes one at a time", machine, []change{{"spec/drain/podsWithVolumes", "OneAtATime"}}},
		{"pods with volumes in parallel", machine, []change{{"spec/drain/podsWithVolumes", "Parallel"}}},
		{"single replicas are restarted", machine, []change{{"spec/drain/singleReplicas", "Restart"}}},
		{"single replicas are evicted", machine, []change{{"spec/drain/singleReplicas", "Evict"}}},
		{"rules in a template", deployment, []change{{"spec/template/spec/drain/rules", most}}},
	})
}

func TestClass(t *testing.T) {
	resources := func(value any) []change {
		return []change{{"spec/capacity/resources", map[string]any{"memory": value}}}
	}
	requireAdmitted(t, []valid{
		{"adoption", class, []change{{"spec/adoption", "Allow"}}},
		{"quantity", class, resources("16Gi")},
		{"quantity with a fraction", class, resources("1.5Gi")},
		{"quantity that is a number", class, resources(4)},
		{"quantity in bytes", class, resources("1099511627776")},
	})
}

func ref(name string) map[string]any { return map[string]any{"name": name} }

func hook(name, owner string) map[string]any { return map[string]any{"name": name, "owner": owner} }
