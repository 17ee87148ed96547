package api

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

// Rule: immutable-fields.
func TestMutableFields(t *testing.T) {
	namespace := env.Namespace(t)
	userData, disk := change{"spec/userDataRef", ref("boot")}, change{"spec/providerSpec/disk/type", "ssd"}
	for _, test := range []struct {
		name    string
		sample  string
		before  []change
		after   []change
		refused string
	}{
		{"class: nested field of providerSpec", class, []change{disk}, []change{{"spec/providerSpec/disk/type", "hdd"}},
			"spec.providerSpec:"},
		{"class: default key of userDataRef", class, []change{userData}, []change{{"spec/userDataRef/key", "userData"}},
			""},
		{"class: credentialsRef", class, []change{{"spec/credentialsRef", ref("old")}},
			[]change{{"spec/credentialsRef/name", "new"}}, ""},
		{"class: adoption", class, nil, []change{{"spec/adoption", "Allow"}}, ""},
		{"set: replicas and template", set, nil,
			[]change{{"spec/replicas", 3}, {"spec/template/spec/classRef", ref("large")}}, ""},
		{"machine: class, version", machine, nil, []change{{"spec/classRef", ref("large")}, {"spec/version", "v1.36.3"}}, ""},
		{"health check: selector", healthCheck, nil, []change{{"spec/selector", labels("pool", "b")}}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := parse(t, namespace, test.sample)
			object.SetName("")
			object.SetGenerateName("mutable-")
			create(t, apply(t, object, test.before...))
			err := tryUpdate(t, apply(t, object, test.after...))
			if test.refused != "" {
				requireRejection(t, err, test.refused)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// Rule: immutable-fields.
func TestProviderIDChangesOnlyFromEmptyOrWhileReplacing(t *testing.T) {
	namespace := env.Namespace(t)
	c := env.Client(t)
	const vm1, vm2 = "sim:///zone-a/vm-1", "sim:///zone-a/vm-2"
	for _, test := range []struct {
		name     string
		old      any // nil if the field is missing
		step     string
		new      any
		admitted bool
	}{
		{"missing to a value", nil, "", vm1, true},
		{"empty to a value", "", "", vm1, true},
		{"missing to empty", nil, "", "", true},
		{"the same value", vm1, "", vm1, true},
		{"a value to another", vm1, "", vm2, false},
		{"a value to empty", vm1, "", "", false},
		{"a value to missing", vm1, "", nil, false},
		{"replacing: a value to empty", vm1, "Replacing", "", true},
		{"replacing: a value to missing", vm1, "Replacing", nil, true},
		{"replacing: a value to another", vm1, "Replacing", vm2, false},
		{"replacing: empty to a value", nil, "Replacing", vm1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			object := parse(t, namespace, machine)
			object.SetName("")
			object.SetGenerateName("provider-id-")
			create(t, apply(t, object, change{"spec/providerID", test.old}))
			if test.step != "" {
				apply(t, object, change{"status/launch", map[string]any{"step": test.step, "attempt": 1}})
				if err := c.Status().Update(t.Context(), object); err != nil {
					t.Fatalf("set the step: %v", err)
				}
			}
			err := tryUpdate(t, apply(t, object, change{"spec/providerID", test.new}))
			if !test.admitted {
				requireRejection(t, err, "spec.providerID")
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}

// The validation rule reads the step from the old object. Otherwise, one request could set the step and also empty the
// provider ID.
func TestOneRequestCannotSetStepAndEmptyProviderID(t *testing.T) {
	object := create(t, apply(t, parse(t, env.Namespace(t), machine), change{"spec/providerID", "sim:///vm-1"}))
	err := tryUpdate(t, apply(t, object,
		change{"spec/providerID", nil},
		change{"status/launch", map[string]any{"step": "Replacing"}}))
	requireRejection(t, err, "spec.providerID")
}

func TestOnlySubresourceUpdatesStatus(t *testing.T) {
	c := env.Client(t)
	object := create(t, parse(t, env.Namespace(t), machine))

	apply(t, object, change{"status/phase", "Running"})
	if err := c.Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if phase, found, _ := unstructured.NestedString(object.Object, "status", "phase"); found {
		t.Errorf("an update of the object set status.phase to %s", phase)
	}
	generation := object.GetGeneration()

	apply(t, object, change{"status/phase", "Running"})
	if err := c.Status().Update(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	if phase, _, _ := unstructured.NestedString(object.Object, "status", "phase"); phase != "Running" {
		t.Errorf("after an update of the status, status.phase is %q, want Running", phase)
	}
	if object.GetGeneration() != generation {
		t.Errorf("an update of the status raised the generation to %d", object.GetGeneration())
	}
}

func TestStatusValues(t *testing.T) {
	c := env.Client(t)
	object := create(t, parse(t, env.Namespace(t), machine))
	condition := func(transition string, generation int64) []any {
		return []any{map[string]any{
			"type": "Ready", "status": "True", "reason": "MachineReady", "message": "",
			"lastTransitionTime": transition, "observedGeneration": generation,
		}}
	}
	for _, test := range []struct {
		name    string
		change  change
		refused string
	}{
		{"condition", change{"status/conditions", condition("2026-08-01T12:00:00Z", 1)}, ""},
		{"condition with a date as its time", change{"status/conditions", condition("2026-01-01", 1)},
			"status.conditions[0].lastTransitionTime"},
		{"condition of generation 2^53", change{"status/conditions", condition("2026-08-01T12:00:00Z", 1<<53)},
			"status.conditions[0].observedGeneration"},
		{"unknown phase", change{"status/phase", "Dancing"}, "status.phase"},
		{"unknown failureReason", change{"status/failureReason", "BadLuck"}, "status.failureReason"},
		{"unknown step", change{"status/launch/step", "Waiting"}, "status.launch.step"},
		{"scope of 1 KiB", change{"status/instance/scope", strings.Repeat("x", 1024)}, ""},
		{"scope of 1 KiB and a byte", change{"status/instance/scope", strings.Repeat("x", 1025)}, "status.instance.scope"},
		{"launch time without a time of day", change{"status/instance/launchTime", "2026-01-01"}, "status.instance.launchTime"},
		{"unknown operation", change{"status/lastOperation/type", "Sleep"}, "status.lastOperation.type"},
		{"attempts beyond int32", change{"status/lastOperation/attempts", int64(1) << 31}, "status.lastOperation.attempts"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := c.Status().Update(t.Context(), apply(t, object.DeepCopy(), test.change), client.DryRunAll)
			if test.refused != "" {
				requireRejection(t, err, test.refused)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			}
		})
	}
}
