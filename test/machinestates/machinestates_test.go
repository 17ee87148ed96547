package machinestates

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

func TestTableRejectsUnknownStates(t *testing.T) {
	running := &v1beta1.Machine{}
	running.Spec.ProviderID = "sim:///m"
	running.Status.Phase = v1beta1.MachineRunning
	running.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionReady, Status: metav1.ConditionTrue,
		Reason: v1beta1.ReasonMachineReady}}
	written := States{}
	written.Add(running)
	written.Add(&v1beta1.Machine{})
	parsed, err := Parse("# comment\n\n" + written.String())
	if err != nil || parsed.String() != written.String() {
		t.Fatalf("parse %q: got %q and error %v", written, parsed, err)
	}
	if missing := parsed.Missing(written); len(missing) > 0 {
		t.Errorf("%q lacks %q", parsed, missing)
	}
	for name, test := range map[string]struct {
		change func(*v1beta1.Machine)
		stored bool
	}{
		"unchanged":             {func(*v1beta1.Machine) {}, true},
		"without conditions":    {func(m *v1beta1.Machine) { m.Status.Conditions = nil }, true},
		"with another reason":   {func(m *v1beta1.Machine) { m.Status.Conditions[0].Reason = "Test" }, false},
		"with a failure reason": {func(m *v1beta1.Machine) { m.Status.FailureReason = v1beta1.FailureCreateError }, false},
		"without an instance":   {func(m *v1beta1.Machine) { m.Spec.ProviderID = "" }, false},
		"while being deleted": {func(m *v1beta1.Machine) {
			m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, false},
	} {
		m := running.DeepCopy()
		test.change(m)
		if err := parsed.Check(m); (err == nil) != test.stored {
			t.Errorf("%s: got error %v, want stored %t", name, err, test.stored)
		}
	}
	if _, err := Parse("  Ready: True/MachineReady\n"); err == nil {
		t.Error("a condition without a head is accepted")
	}
}
