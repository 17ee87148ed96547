package disruption

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// slowLists is a reader that calls a function of the test between the read of the machines and the return.
type slowLists struct {
	client.Reader
	budget   v1beta1.MachineDisruptionBudget
	machines []v1beta1.Machine
	before   func()
}

func (l *slowLists) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	switch into := list.(type) {
	case *v1beta1.MachineDisruptionBudgetList:
		into.Items = []v1beta1.MachineDisruptionBudget{l.budget}
	case *v1beta1.MachineList:
		machines := l.machines
		if l.before != nil {
			l.before()
		}
		into.Items = machines
	}
	return nil
}

func serving(names ...string) (machines []v1beta1.Machine) {
	for _, name := range names {
		m := v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: name, UID: types.UID(name)}}
		m.Status.NodeRef = &v1beta1.NodeRef{Name: name}
		machines = append(machines, m)
	}
	return machines
}

// A live list may take long, and Check does not wait for it. If the write of a grant succeeds during the live list, the
// list may lack the write. Even in this case, the machine whose disruption was granted must count as disrupted.
func TestLiveListBlocksNoCheck(t *testing.T) {
	cluster := &slowLists{machines: serving("a", "b")}
	cluster.budget = v1beta1.MachineDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "pace",
		UID: "1", ResourceVersion: "1"}}
	cluster.budget.Spec.MaxDisrupted = intstr.FromInt32(1)
	live := &slowLists{budget: cluster.budget, machines: cluster.machines}
	l := New(Options{Client: cluster, LiveReader: live})
	a, b := &cluster.machines[0], &cluster.machines[1]
	asker := asker("web")
	ask := func(m *v1beta1.Machine) []Candidate {
		return []Candidate{{Machine: m, Reason: v1beta1.DisruptionRollout}}
	}
	if granted, err := l.Grant(t.Context(), asker, ask(a)); err != nil || len(granted) != 1 {
		t.Fatalf("granted %v, %v", granted, err)
	}
	checked := false
	live.before = func() {
		if _, denied, err := l.Check(t.Context(), asker, ask(b)); err != nil || len(denied) != 1 {
			t.Errorf("a check during the live list denied %v, %v", denied, err)
		}
		l.Settle(a, nil) // The deletion is not in the list that is in progress.
		checked = true
	}
	if granted, err := l.Grant(t.Context(), asker, ask(b)); err != nil || len(granted) != 0 {
		t.Errorf("granted %v, %v, although the budget allows only one disruption", granted, err)
	}
	if !checked {
		t.Error("the machines were not listed live")
	}
}
