package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// machine returns a machine that something happened to at a minute after noon.
func machine(name string, minute int, change func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(noon)}}
	m.Spec.ProviderID = "sim://" + name
	change(m)
	when := metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute))
	for i := range m.Status.Conditions {
		m.Status.Conditions[i].LastTransitionTime = when
	}
	return m
}

func condition(kind string, status metav1.ConditionStatus, reason string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Conditions = append(m.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason})
	}
}

func isReady(m *v1beta1.Machine) {
	m.Status.Phase = v1beta1.MachineRunning
	condition(v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)(m)
}

func notReady(m *v1beta1.Machine) {
	condition(v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonPending)(m)
}

func failedFor(reason v1beta1.MachineFailureReason) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Spec.ProviderID = ""
		m.Status.Phase, m.Status.FailureReason = v1beta1.MachineFailed, reason
		condition(v1beta1.ConditionReady, metav1.ConditionFalse, string(reason))(m)
	}
}

func refusedFor(reason string) func(*v1beta1.Machine) {
	return condition(v1beta1.ConditionLaunched, metav1.ConditionFalse, reason)
}

// D-5
func TestFailuresInARow(t *testing.T) {
	type step struct {
		set      types.UID
		machines []*v1beta1.Machine
		seen     map[types.UID]launchFailure
	}
	create, join := failedFor(v1beta1.FailureCreateError), failedFor(v1beta1.FailureJoinClusterTimeout)
	tests := []struct {
		name  string
		steps []step
		want  int
	}{
		{"none", []step{{set: "s", machines: []*v1beta1.Machine{machine("a", 1, isReady), machine("b", 2, notReady)}}}, 0},
		{"all kinds", []step{{set: "s", machines: []*v1beta1.Machine{
			machine("a", 1, create), machine("b", 2, join), machine("c", 3, failedFor(v1beta1.FailureInsufficientResources)),
		}}}, 3},
		{"one that was Running and vanished is none", []step{{set: "s", machines: []*v1beta1.Machine{machine("a", 1, failedFor(v1beta1.FailureInstanceVanished))}}}, 0},
		{"one after the other, each replaced", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("c", 3, create)}},
		}, 3},
		{"replaced before it was looked at", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create)}},
			{set: "s", seen: map[types.UID]launchFailure{"b": {"s", noon.Add(time.Minute)}, "a": {"s", noon}, "x": {"other", noon.Add(time.Minute)}}},
		}, 2},
		{"one became Ready since", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create), machine("b", 1, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("c", 2, isReady), machine("d", 3, join)}},
		}, 1},
		{"one was Ready before", []step{{set: "s", machines: []*v1beta1.Machine{machine("c", 1, isReady), machine("a", 2, create), machine("b", 2, create)}}}, 2},
		{"another revision starts afresh", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create), machine("b", 1, create)}},
			{set: "t", machines: []*v1beta1.Machine{machine("c", 2, create)}},
		}, 1},
		{"refused ones count while they are", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, refusedFor(v1beta1.ReasonInvalidConfiguration)), machine("b", 1, refusedFor(v1beta1.ReasonClassNotFound))}},
			{set: "s", machines: []*v1beta1.Machine{machine("a", 2, refusedFor(v1beta1.ReasonCreateFailed)), machine("b", 1, refusedFor(v1beta1.ReasonClassNotFound))}},
		}, 1},
		{"no more is remembered than needed", []step{{set: "s", machines: []*v1beta1.Machine{
			machine("a", 1, create), machine("b", 2, create), machine("c", 3, create), machine("d", 4, create), machine("e", 5, create)}}, {set: "s"}}, 3},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var f failures
			var got int
			for _, s := range test.steps {
				got, _ = f.observe(s.set, s.machines, s.seen)
			}
			if got != test.want {
				t.Errorf("%d failures in a row, expected %d", got, test.want)
			}
		})
	}
}

func TestFailingIsRememberedInTheStatus(t *testing.T) {
	d := deployment("b")
	d.Status.CurrentRevision = 2
	d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionProgressing, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonRevisionFailing, LastTransitionTime: metav1.NewTime(noon)}}
	for _, test := range []struct {
		name     string
		inARow   int
		ready    time.Time
		revision int64
		want     bool
	}{
		{"counted again", 3, time.Time{}, 3, true},
		{"too few", 2, time.Time{}, 3, false},
		{"after a restart", 0, time.Time{}, 2, true},
		{"after a restart, and one was Ready before", 0, noon.Add(-time.Second), 2, true},
		{"one became Ready since", 0, noon.Add(time.Second), 2, false},
		{"another revision", 0, time.Time{}, 3, false},
	} {
		if got := failing(test.inARow, test.ready, d, test.revision); got != test.want {
			t.Errorf("%s: failing is %v, expected %v", test.name, got, test.want)
		}
	}
}
