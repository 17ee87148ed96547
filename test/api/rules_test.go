package api

import (
	"strings"
	"testing"
)

// verdict is what the API server says to a sample with changes.
type verdict struct {
	name    string
	sample  string
	changes []change
	refused []string // what the refusal says, the field above all; empty if the object is admitted
}

func judge(t *testing.T, verdicts []verdict) {
	t.Helper()
	for _, v := range verdicts {
		t.Run(v.name, func(t *testing.T) {
			err := tryCreate(t, apply(t, parse(t, "default", v.sample), v.changes...))
			if len(v.refused) > 0 {
				requireRefusal(t, err, v.refused...)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

func TestSamplesAreAdmitted(t *testing.T) {
	for _, sample := range []string{class, machine, inlineMachine, set, deployment, healthCheck} {
		if err := tryCreate(t, parse(t, "default", sample)); err != nil {
			t.Errorf("%s: %v", sample, err)
		}
	}
}

//
func TestNames(t *testing.T) {
	name := func(value string) []change { return []change{{"metadata/name", value}} }
	a := func(n int) string { return strings.Repeat("a", n) }
	judge(t, []verdict{
		{"machine of 1 character", machine, name("x"), nil},
		{"machine of 63", machine, name(a(63)), nil},
		{"machine of 64", machine, name(a(64)), []string{"metadata.name", "63"}},
		{"machine with a dot", machine, name("a.b"), []string{"metadata.name"}},
		{"set of 57", set, name(a(57)), nil},
		{"set of 58", set, name(a(58)), []string{"metadata.name", "57"}},
		{"set with a dot", set, name("a.b"), []string{"metadata.name"}},
		{"deployment of 1 character", deployment, name("x"), nil},
		{"deployment of 47", deployment, name(a(47)), nil},
		{"deployment of 48", deployment, name(a(48)), []string{"metadata.name", "47"}},
		{"deployment with a dot", deployment, name("a.b"), []string{"metadata.name"}},
		{"class with dots", class, name("a.b"), nil},
	})
}

//
func TestMachineSpec(t *testing.T) {
	spec := func(field string, value any) []change { return []change{{"spec/" + field, value}} }
	judge(t, []verdict{
		{"neither class nor provider", machine, spec("classRef", nil), []string{"spec", "exactly one of classRef and provider"}},
		{"class and provider", inlineMachine, spec("classRef", ref("small")), []string{"spec", "exactly one of classRef and provider"}},
		{"class and providerSpec", machine, spec("providerSpec", map[string]any{}), []string{"spec.providerSpec"}},
		{"class and credentialsRef", machine, spec("credentialsRef", ref("cloud")), []string{"spec.credentialsRef"}},
		{"class and userDataRef", machine, spec("userDataRef", ref("boot")), []string{"spec.userDataRef"}},
		{"provider without providerSpec", inlineMachine, spec("providerSpec", nil), []string{"spec.providerSpec"}},
		{"providerSpec without provider", inlineMachine, spec("provider", nil), []string{"exactly one of classRef and provider"}},
		{"inline with everything", inlineMachine, []change{{"spec/credentialsRef", ref("cloud")}, {"spec/userDataRef", ref("boot")}}, nil},
		{"class without a name", machine, spec("classRef", map[string]any{}), []string{"spec.classRef.name"}},
		{"class with an empty name", machine, spec("classRef", ref("")), []string{"spec.classRef.name"}},
		{"class of another namespace", machine, spec("classRef", ref("other/small")), []string{"spec.classRef.name"}},
		{"empty provider", inlineMachine, spec("provider", ""), []string{"spec.provider"}},
		{"provider that is no label", inlineMachine, spec("provider", "Sim.Cloud"), []string{"spec.provider"}},
		{"providerSpec that is a string", inlineMachine, spec("providerSpec", "size: small"), []string{"spec.providerSpec"}},
		{"providerSpec that is a list", inlineMachine, spec("providerSpec", []string{"small"}), []string{"spec.providerSpec"}},
		{"providerSpec of 1 MiB", inlineMachine, spec("providerSpec", map[string]any{"blob": strings.Repeat("x", 1<<20)}), nil},
		{"userDataRef with a key that is none", inlineMachine, spec("userDataRef", map[string]any{"name": "boot", "key": "a/b"}), []string{"spec.userDataRef.key"}},
		{"version", machine, spec("version", "v1.36.3"), nil},
		{"version with a build", machine, spec("version", "v1.36.3-rc.1+k3s1"), nil},
		{"version without v", machine, spec("version", "1.36.3"), []string{"spec.version"}},
		{"version without a patch", machine, spec("version", "v1.36"), []string{"spec.version"}},
		{"version that is a word", machine, spec("version", "latest"), []string{"spec.version"}},
		{"empty version", machine, spec("version", ""), []string{"spec.version"}},
		{"providerID", machine, spec("providerID", "sim:///zone-a/vm-1"), nil},
		{"empty providerID", machine, spec("providerID", ""), nil},
		{"providerID without a scheme", machine, spec("providerID", "vm-1"), []string{"spec.providerID"}},
		{"providerID with a blank", machine, spec("providerID", "sim:///vm 1"), []string{"spec.providerID"}},
		{"providerID too long", machine, spec("providerID", "sim:///"+strings.Repeat("a", 1024)), []string{"spec.providerID"}},
	})
}

//
func TestDurations(t *testing.T) {
	drain := func(value any) []change { return []change{{"spec/timeouts/drain", value}} }
	const field = "spec.timeouts.drain"
	judge(t, []verdict{
		{"minutes", machine, drain("90m"), nil},
		{"hours and minutes", machine, drain("1h30m"), nil},
		{"as Go writes it", machine, drain("1h30m0.5s"), nil},
		{"fraction", machine, drain("1.5h"), nil},
		{"milliseconds", machine, drain("300ms"), nil},
		{"nothing", machine, drain("0s"), nil},
		{"words", machine, drain("10 minutes"), []string{field}},
		{"weeks", machine, drain("3 weeks"), []string{field}},
		{"days", machine, drain("3d"), []string{field}},
		{"no unit", machine, drain("20"), []string{field}},
		{"a number", machine, drain(20), []string{field}},
		{"empty", machine, drain(""), []string{field}},
		{"negative", machine, drain("-5m"), []string{field}},
		{"nanoseconds", machine, drain("5ns"), []string{field}},
		{"less than a millisecond", machine, drain("0.5ms"), []string{field}},
		{"six digits", machine, drain("100000h"), []string{field}},
		{"a sum of six digits", machine, drain("99999h99999h"), []string{field, "100000h"}},
		{"ISO 8601", machine, drain("PT5M"), []string{field}},
		{"no creation", machine, []change{{"spec/timeouts/creation", "0s"}}, []string{"spec.timeouts.creation"}},
		{"no update", machine, []change{{"spec/timeouts/update", "0s"}}, []string{"spec.timeouts.update"}},
		{"in a template", deployment, []change{{"spec/template/spec/timeouts/creation", "3 weeks"}}, []string{"spec.template.spec.timeouts.creation"}},
		{"of a health check", healthCheck, []change{{"spec/nodeStartupTimeout", "10 minutes"}}, []string{"spec.nodeStartupTimeout"}},
		{"no startup timeout", healthCheck, []change{{"spec/nodeStartupTimeout", "0s"}}, []string{"spec.nodeStartupTimeout"}},
		{"progress", deployment, []change{{"spec/progressDeadline", "ten"}}, []string{"spec.progressDeadline"}},
		{"progress not longer than minReadySeconds", deployment, []change{{"spec/progressDeadline", "1m"}, {"spec/minReadySeconds", 60}}, []string{"spec.progressDeadline", "minReadySeconds"}},
		{"progress longer than minReadySeconds", deployment, []change{{"spec/progressDeadline", "61s"}, {"spec/minReadySeconds", 60}}, nil},
	})
}

func TestTimes(t *testing.T) {
	after := func(value any) []change { return []change{{"spec/rolloutAfter", value}} }
	const field = "spec.rolloutAfter"
	judge(t, []verdict{
		{"UTC", deployment, after("2026-08-01T12:00:00Z"), nil},
		{"with an offset", deployment, after("2026-08-01T12:00:00.123+02:00"), nil},
		{"a date", deployment, after("2026-01-01"), []string{field}},
		{"without a zone", deployment, after("2026-08-01T12:00:00"), []string{field}},
		{"lower case", deployment, after("2026-08-01t12:00:00z"), []string{field}},
		{"31st of February", deployment, after("2026-02-31T12:00:00Z"), []string{field}},
		{"29th of February", deployment, after("2028-02-29T12:00:00Z"), nil},
		{"29th of February in another year", deployment, after("2026-02-29T12:00:00Z"), []string{field}},
		{"29th of February 2100", deployment, after("2100-02-29T12:00:00Z"), []string{field}},
		{"a list", deployment, after([]string{}), []string{field}},
		{"leap second", deployment, after("2016-12-31T23:59:60Z"), []string{field}},
		{"year 0", deployment, after("0000-01-01T00:00:00+01:00"), []string{field}},
		{"year 9999", deployment, after("9999-12-31T23:59:59-01:00"), []string{field}},
		{"a number", deployment, after(1767225600), []string{field}},
		{"empty", deployment, after(""), []string{field}},
	})
}

func TestNodeTemplate(t *testing.T) {
	node := func(field string, value any) []change { return []change{{"spec/node/" + field, value}} }
	taint := func(key, value, effect string) map[string]any {
		return map[string]any{"key": key, "value": value, "effect": effect}
	}
	judge(t, []verdict{
		{"labels", machine, node("labels", map[string]any{"pool": "a", "example.com/tier": ""}), nil},
		{"label key with a blank", machine, node("labels", map[string]any{"my pool": "a"}), []string{"spec.node.labels"}},
		{"label key with two slashes", machine, node("labels", map[string]any{"a/b/c": "a"}), []string{"spec.node.labels"}},
		{"label key with a prefix of 254", machine, node("labels", map[string]any{strings.Repeat("a", 254) + "/b": "a"}), []string{"spec.node.labels"}},
		{"label key in unicode", machine, node("labels", map[string]any{"größe": "a"}), []string{"spec.node.labels"}},
		{"empty label key", machine, node("labels", map[string]any{"": "a"}), []string{"spec.node.labels"}},
		{"label value with a blank", machine, node("labels", map[string]any{"pool": "a b"}), []string{"spec.node.labels"}},
		{"label value of 64", machine, node("labels", map[string]any{"pool": strings.Repeat("a", 64)}), []string{"spec.node.labels"}},
		{"label value that is a boolean", machine, node("labels", map[string]any{"pool": true}), []string{"spec.node.labels.pool"}},
		{"annotation key with a blank", machine, node("annotations", map[string]any{"my note": "a"}), []string{"spec.node.annotations"}},
		{"annotation", machine, node("annotations", map[string]any{"example.com/note": "größer 🚀 <<MACHINE_NAME>>"}), nil},
		{"label key in a template", set, []change{{"spec/template/spec/node/labels", map[string]any{"my pool": "a"}}}, []string{"spec.template.spec.node.labels"}},
		{"taint", machine, node("taints", []any{taint("example.com/gpu", "yes", "NoSchedule")}), nil},
		{"taint with two effects", machine, node("taints", []any{taint("gpu", "", "NoSchedule"), taint("gpu", "", "NoExecute")}), nil},
		{"taint twice", machine, node("taints", []any{taint("gpu", "a", "NoSchedule"), taint("gpu", "b", "NoSchedule")}), []string{"spec.node.taints"}},
		{"taint with an effect that is none", machine, node("taints", []any{taint("gpu", "", "Maybe")}), []string{"spec.node.taints[0].effect"}},
		{"taint with a bad key", machine, node("taints", []any{taint("g p u", "", "NoSchedule")}), []string{"spec.node.taints[0].key"}},
		{"taint with a bad value", machine, node("startupTaints", []any{taint("gpu", "a b", "NoSchedule")}), []string{"spec.node.startupTaints[0].value"}},
		{"taint both lasting and at startup", machine, []change{
			{"spec/node/taints", []any{taint("gpu", "", "NoSchedule")}},
			{"spec/node/startupTaints", []any{taint("gpu", "", "NoSchedule")}},
		}, []string{"spec.node.startupTaints"}},
		{"hook", machine, []change{{"spec/lifecycleHooks/preDrain", []any{hook("backup.example.com/flush", "backup")}}}, nil},
		{"hook without a domain", machine, []change{{"spec/lifecycleHooks/preDrain", []any{hook("backup", "backup")}}}, []string{"spec.lifecycleHooks.preDrain[0].name"}},
		{"hook without an owner", machine, []change{{"spec/lifecycleHooks/preTerminate", []any{hook("backup.example.com", "")}}}, []string{"spec.lifecycleHooks.preTerminate[0].owner"}},
		{"hook twice", machine, []change{{"spec/lifecycleHooks/preDrain", []any{hook("a.example.com", "x"), hook("a.example.com", "y")}}}, []string{"spec.lifecycleHooks.preDrain[1]"}},
	})
}

//
func TestClass(t *testing.T) {
	resources := func(value any) []change {
		return []change{{"spec/capacity/resources", map[string]any{"memory": value}}}
	}
	const field = "spec.capacity.resources.memory"
	judge(t, []verdict{
		{"without provider", class, []change{{"spec/provider", nil}}, []string{"spec.provider"}},
		{"without providerSpec", class, []change{{"spec/providerSpec", nil}}, []string{"spec.providerSpec"}},
		{"adoption", class, []change{{"spec/adoption", "Allow"}}, nil},
		{"adoption that is none", class, []change{{"spec/adoption", "Maybe"}}, []string{"spec.adoption"}},
		{"quantity", class, resources("16Gi"), nil},
		{"quantity with a fraction", class, resources("1.5Gi"), nil},
		{"quantity that is a number", class, resources(4), nil},
		{"quantity in bytes", class, resources("1099511627776"), nil},
		{"quantity with an exponent", class, resources("1e3"), []string{field}},
		{"quantity that hangs the parser", class, resources("1e999999999999"), []string{field}},
		{"quantity of 16 digits", class, resources("1000000000000000"), []string{field}},
		{"quantity that is a number of 16 digits", class, resources(1000000000000000), []string{field}},
		{"quantity that is a fraction", class, resources(1.5), []string{field}},
		{"negative quantity", class, resources("-1"), []string{field}},
		{"quantity without digits", class, resources("Gi"), []string{field}},
		{"empty quantity", class, resources(""), []string{field}},
		{"resource that is no name", class, []change{{"spec/capacity/resources", map[string]any{"my gpu": "1"}}}, []string{"spec.capacity.resources"}},
	})
}

func ref(name string) map[string]any { return map[string]any{"name": name} }

func hook(name, owner string) map[string]any { return map[string]any{"name": name, "owner": owner} }
