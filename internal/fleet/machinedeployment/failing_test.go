package machinedeployment

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

func machine(name string, minute int, change func(*v1beta1.Machine)) *v1beta1.Machine {
	m := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name),
		CreationTimestamp: metav1.NewTime(noon)}}
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

func seenFailing(set types.UID, name string, minute int) launchFailure {
	at := metav1.NewTime(noon.Add(time.Duration(minute) * time.Minute))
	return launchFailure{set: set, machine: v1beta1.FailedMachine{Name: name, Reason: string(v1beta1.FailureCreateError),
		Time: &at}}
}

func unhealthyFor(reason string) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) {
		m.Status.Phase = v1beta1.MachineProvisioned
		notReady(m)
		condition(v1beta1.ConditionRemediationRequested, metav1.ConditionTrue, reason)(m)
	}
}

func unlaunchableFor(reason string) func(*v1beta1.Machine) {
	return condition(v1beta1.ConditionLaunched, metav1.ConditionFalse, reason)
}

// Rule: failing-revision-stops.
func TestFailuresInARow(t *testing.T) {
	type step struct {
		set      types.UID
		machines []*v1beta1.Machine
		seen     []launchFailure
	}
	create, join := failedFor(v1beta1.FailureCreateError), failedFor(v1beta1.FailureJoinClusterTimeout)
	tests := []struct {
		name  string
		steps []step
		want  int
	}{
		{"no failures",
			[]step{{set: "s", machines: []*v1beta1.Machine{machine("a", 1, isReady), machine("b", 2, notReady)}}}, 0},
		{"all kinds", []step{{set: "s", machines: []*v1beta1.Machine{
			machine("a", 1, create), machine("b", 2, join), machine("c", 3, failedFor(v1beta1.FailureInsufficientResources)),
		}}}, 3},
		{"an instance that vanished is not a launch failure",
			[]step{{set: "s", machines: []*v1beta1.Machine{machine("a", 1, failedFor(v1beta1.FailureInstanceVanished))}}}, 0},
		{"one failure after the other, each machine replaced", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("c", 3, create)}},
		}, 3},
		{"a failed machine replaced before it was observed", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create)}},
			{set: "s", seen: []launchFailure{seenFailing("s", "b", 1), seenFailing("s", "a", 0), seenFailing("other", "x", 1)}},
		}, 2},
		{"a machine became Ready since", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create), machine("b", 1, create)}},
			{set: "s", machines: []*v1beta1.Machine{machine("c", 2, isReady), machine("d", 3, join)}},
		}, 1},
		{"a machine was Ready before", []step{{set: "s", machines: []*v1beta1.Machine{machine("c", 1, isReady),
			machine("a", 2, create), machine("b", 2, create)}}}, 2},
		{"a machine became Ready after them, by a clock that was set back", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 9, create), machine("b", 9, join)}},
			{set: "s", machines: []*v1beta1.Machine{machine("a", 9, create), machine("c", 5, isReady)}},
			{set: "s", machines: []*v1beta1.Machine{machine("a", 9, create), machine("c", 5, isReady),
				machine("d", 6, create)}},
		}, 1},
		{"another revision starts with no failures", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, create), machine("b", 1, create)}},
			{set: "t", machines: []*v1beta1.Machine{machine("c", 2, create)}},
		}, 1},
		{"unlaunchable machines count while they are unlaunchable", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, unlaunchableFor(v1beta1.ReasonInvalidConfiguration)),
				machine("b", 1, unlaunchableFor(v1beta1.ReasonClassNotFound))}},
			{set: "s", machines: []*v1beta1.Machine{machine("a", 2, unlaunchableFor(v1beta1.ReasonCreateFailed)),
				machine("b", 1, unlaunchableFor(v1beta1.ReasonClassNotFound))}},
		}, 1},
		{"health checks request replacement, one machine after the other", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, unhealthyFor(v1beta1.ReasonMachineHealthCheck))}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, unhealthyFor(v1beta1.ReasonBuiltInPolicy))}},
			{set: "s", machines: []*v1beta1.Machine{machine("c", 3, unhealthyFor(v1beta1.ReasonExternalRemediation))}},
			{set: "s", machines: []*v1beta1.Machine{machine("d", 3, notReady)}},
		}, 3},
		{"a health check withdraws its request", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, unhealthyFor(v1beta1.ReasonMachineHealthCheck))}},
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, notReady)}},
		}, 0},
		{"an annotation requests a replacement", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, unhealthyFor(v1beta1.ReasonRemediateAnnotation))}},
		}, 0},
		{"a health check requests replacement of a machine that was Ready", []step{{set: "s", machines: []*v1beta1.Machine{
			machine("a", 1, unhealthyFor(v1beta1.ReasonMachineHealthCheck)), machine("b", 1, func(m *v1beta1.Machine) {
				unhealthyFor(v1beta1.ReasonMachineHealthCheck)(m)
				m.Status.Phase = v1beta1.MachineUnhealthy
			})}}}, 1},
		{"a machine became Ready since a health check requested replacement of another", []step{
			{set: "s", machines: []*v1beta1.Machine{machine("a", 1, unhealthyFor(v1beta1.ReasonMachineHealthCheck))}},
			{set: "s", machines: []*v1beta1.Machine{machine("b", 2, isReady)}},
		}, 0},
		{"no more failures are remembered than needed", []step{{set: "s", machines: []*v1beta1.Machine{
			machine("a", 1, create), machine("b", 2, create), machine("c", 3, create), machine("d", 4, create),
			machine("e", 5, create)}}, {set: "s"}}, 3},
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

func TestFailing(t *testing.T) {
	d := deployment("b")
	d.Status.CurrentRevision = 2
	d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionProgressing, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonRevisionFailing, LastTransitionTime: metav1.NewTime(noon)}}
	for _, test := range []struct {
		name      string
		inARow    int
		ready     time.Time
		recovered bool
		revision  int64
		want      bool
	}{
		{"three failures", 3, time.Time{}, false, 3, true},
		{"two failures", 2, time.Time{}, false, 3, false},
		{"after a restart", 0, time.Time{}, false, 2, true},
		{"after a restart, and a machine was Ready before the condition", 0, noon.Add(-time.Second), false, 2, true},
		{"a machine became Ready since", 0, noon.Add(time.Second), false, 2, false},
		{"a machine became Ready since, by a clock that is behind", 0, noon.Add(-time.Minute), true, 2, false},
		{"three failures since a machine became Ready", 3, noon.Add(-time.Minute), true, 2, true},
		{"another revision", 0, time.Time{}, false, 3, false},
	} {
		if got := failing(test.inARow, test.ready, test.recovered, d, test.revision); got != test.want {
			t.Errorf("%s: failing is %v, expected %v", test.name, got, test.want)
		}
	}
}

// Rule: progress-survives-restart.
func TestFailuresInARowSurviveRestart(t *testing.T) {
	d := deployment("b")
	old, set := setOf("a", 1, noon), setOf("b", 2, noon)
	one := int32(1)
	set.Spec.Replicas = &one
	sets := []*v1beta1.MachineSet{old, set}
	for n, suffix := range []string{"aaaaa", "bbbbb", "ccccc"} {
		machines := map[types.UID][]*v1beta1.Machine{
			old.UID: {machine("a1", 0, isReady), machine("a2", 0, isReady),
				machine(old.Name+"-xxxxx", 0, failedFor(v1beta1.FailureCreateError))},
			set.UID: {machine(set.Name+"-"+suffix, n+1, failedFor(v1beta1.FailureJoinClusterTimeout))},
		}
		v := viewed(t, d, sets, machines)
		if want := n == 2; v.state.Failing != want {
			t.Fatalf("after %d failed launches the revision fails: %v, expected %v", n+1, v.state.Failing, want)
		}
		status, _ := statusOf(d, v, "app=web", noon.Add(time.Hour))
		d.Status = *status
	}
	if n := len(d.Status.FailedMachines); n != 4 {
		t.Errorf("the status lists %d failed machines, expected 3 of the new set and 1 of the old one: %+v", n,
			d.Status.FailedMachines)
	}

	d.Status.Conditions = nil
	for _, test := range []struct {
		name     string
		machines []*v1beta1.Machine
		failing  bool
		gone     int
	}{
		{"all failures are known", nil, true, 3},
		{"a machine became Ready since", []*v1beta1.Machine{machine(set.Name+"-ddddd", 4, isReady)}, false, 0},
		{"a machine became Ready in between", []*v1beta1.Machine{machine(set.Name+"-ddddd", 2, isReady)}, false, 1},
	} {
		v := viewed(t, d, sets, map[types.UID][]*v1beta1.Machine{set.UID: test.machines,
			old.UID: {machine("a1", 0, isReady)}})
		if v.state.Failing != test.failing || len(v.failedAndGone) != test.gone {
			t.Errorf("%s: failing is %v and %d failed machines are remembered, expected %v and %d", test.name, v.state.Failing,
				len(v.failedAndGone), test.failing, test.gone)
		}
	}
	if v := viewed(t, deployment("a"), sets, nil); v.state.Failing {
		t.Error("the old revision counts as failing")
	}
}

// A health check's request leads to the deletion of the machine before its phase becomes Failed, so the request must
// count.
//
// Rule: failing-revision-stops.
func TestMachinesReplacedByHealthChecksCount(t *testing.T) {
	set := setOf("b", 2, noon)
	set.UID = "set"
	d := deployment("b")
	requested := v1beta1.ReasonMachineHealthCheck
	m := machine(set.Name+"-aaaaa", 1, unhealthyFor(requested))
	m.Labels = map[string]string{v1beta1.LabelMachineDeployment: "web"}
	controller := true
	m.OwnerReferences = []metav1.OwnerReference{{Kind: "MachineSet", Name: set.Name, UID: set.UID,
		Controller: &controller}}
	key := types.NamespacedName{Namespace: m.Namespace, Name: "web"}
	r := &Reconciler{shared: newSharedState()}
	state := r.shared.get(key, d.UID)
	r.deploymentOfMachine(t.Context(), m)
	seen := r.shared.takeFailed(state)
	var f failures
	if inARow, _ := f.observe(set.UID, nil, seen); inARow != 1 {
		t.Fatalf("%d failures in a row after a health check requested a replacement, want 1", inARow)
	}
	gone := f.gone(nil)
	if len(gone) != 1 || gone[0].Reason != requested || !gone[0].Time.Equal(&metav1.Time{Time: noon.Add(time.Minute)}) {
		t.Fatalf("failures of machines that are gone: %+v, want one with the time of the request, for %s", gone, requested)
	}
	var next failures
	next.restore(set, gone)
	if inARow, _ := next.observe(set.UID, nil, nil); inARow != 1 {
		t.Errorf("a new process knows of %d failures, want 1", inARow)
	}
}

func TestStatusListsAtMostTenFailedMachines(t *testing.T) {
	var failed []v1beta1.FailedMachine
	for _, name := range strings.Split("a c e g i k m o q s u w", " ") {
		failed = append(failed, v1beta1.FailedMachine{Name: name})
	}
	got := ""
	for _, m := range limitFailedMachines(failed, []v1beta1.FailedMachine{{Name: "z"}, {Name: "b"}}) {
		got += m.Name
	}
	if got != "abcegikmoz" {
		t.Errorf("the status lists %q, expected z and b, which are gone, and the first 8 of the others", got)
	}
}

// A preview may call observe for a set without a UID. In the first pass, the failures have not been restored from the
// status yet.
func TestFailuresCanBeRecordedBeforeTheFirstPass(t *testing.T) {
	var f failures
	m := &v1beta1.Machine{}
	m.Name, m.Status.Phase, m.Status.FailureReason = "web-1", v1beta1.MachineFailed, v1beta1.FailureCreateError
	m.CreationTimestamp = metav1.Unix(1, 0)
	if inARow, _ := f.observe("", []*v1beta1.Machine{m}, nil); inARow != 1 {
		t.Errorf("%d failures in a row, want 1", inARow)
	}
}

// The Ready time comes from the provider's clock, and the time of Progressing from the manager's clock.
//
// Rule: failing-revision-stops.
func TestReadyMachineEndsFailureDespiteClockDifference(t *testing.T) {
	d := deployment("b")
	old, set := setOf("a", 1, noon), setOf("b", 2, noon)
	d.Status.CurrentRevision = 2
	d.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionProgressing, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonRevisionFailing, LastTransitionTime: metav1.NewTime(noon.Add(30 * time.Minute))}}
	for n, suffix := range []string{"aaaaa", "bbbbb", "ccccc"} {
		d.Status.FailedMachines = append(d.Status.FailedMachines,
			failedMachine(machine(set.Name+"-"+suffix, n+1, failedFor(v1beta1.FailureCreateError))))
	}
	for minute, want := range map[int]bool{2: true, 5: false} {
		v := viewed(t, d, []*v1beta1.MachineSet{old, set}, map[types.UID][]*v1beta1.Machine{
			set.UID: {machine(set.Name+"-ddddd", minute, isReady)}, old.UID: {machine("a1", 0, isReady)}})
		if v.state.Failing != want {
			t.Errorf("a machine became Ready in minute %d, the last failed in minute 3: failing is %v, want %v", minute,
				v.state.Failing, want)
		}
	}
}
