package simulation

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// TestAutoscalerLosesNoMachine runs an autoscaler that marks machines and lowers the size at any time, even during
// rollouts. Available machines of the current revision must not be deleted unless they are marked, and marked machines
// must be deleted. An empty deployment must grow again according to the capacity in its annotations. go run
// ./test/simulate --group autoscaling runs many more seeds.
//
// Rules: deletion-order-of-machines, victims-from-fresh-view, surge-and-unavailable-kept,
// scale-during-rollout-in-proportion, capacity-of-empty-node-groups, capacity-annotations-of-people-stay.
func TestAutoscalerLosesNoMachine(t *testing.T) {
	t.Parallel()
	scenarios := slices.DeleteFunc(Scenarios(), func(s Scenario) bool {
		return !strings.HasPrefix(s.Name, "autoscaler")
	})
	if len(scenarios) != 3 {
		t.Fatalf("got %d scenarios with an autoscaler, want 3", len(scenarios))
	}
	report, err := Sweep{Scenarios: scenarios, Runs: 30, Seed: 1, Workers: 2}.Run(Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range report.Failures {
		t.Errorf("scenario %s, seed %d: %s", f.Scenario, f.Seed, f)
	}
}

func TestInstanceStateOf(t *testing.T) {
	t.Parallel()
	machine := func(change func(*v1beta1.Machine)) *v1beta1.Machine {
		m := &v1beta1.Machine{}
		change(m)
		return m
	}
	for name, c := range map[string]struct {
		machine *v1beta1.Machine
		want    instanceState
	}{
		"without an instance": {machine(func(*v1beta1.Machine) {}), pending},
		"with an instance":    {machine(func(m *v1beta1.Machine) { m.Spec.ProviderID = "fake:///1" }), running},
		"with a Node":         {machine(func(m *v1beta1.Machine) { m.Status.NodeRef = &v1beta1.NodeRef{} }), running},
		"failed with an instance": {machine(func(m *v1beta1.Machine) {
			m.Spec.ProviderID, m.Status.FailureMessage = "fake:///1", "gone"
		}), failed},
		"being deleted": {machine(func(m *v1beta1.Machine) {
			m.Spec.ProviderID, m.DeletionTimestamp = "fake:///1", &metav1.Time{Time: epoch}
		}), deleting},
		"deleted without instance": {machine(func(m *v1beta1.Machine) { m.DeletionTimestamp = &metav1.Time{Time: epoch} }),
			pending},
	} {
		if got := instanceStateOf(c.machine); got != c.want {
			t.Errorf("%s: got state %d, want %d", name, got, c.want)
		}
	}
}
