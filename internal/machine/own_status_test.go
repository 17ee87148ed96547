package machine

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: recorded-status-put-back.
func TestStatusWrittenByAnotherClientIsRestored(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1beta1.MachineStatus){
		"no instance":       func(s *v1beta1.MachineStatus) { s.Instance = nil },
		"another scope":     func(s *v1beta1.MachineStatus) { s.Instance.Scope = "elsewhere" },
		"another node name": func(s *v1beta1.MachineStatus) { s.Instance.NodeName = "another" },
		"no specification":  func(s *v1beta1.MachineStatus) { s.Applied = nil },
		"not launched": func(s *v1beta1.MachineStatus) {
			meta.RemoveStatusCondition(&s.Conditions, v1beta1.ConditionLaunched)
		},
		"drained": func(s *v1beta1.MachineStatus) {
			meta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: v1beta1.ConditionDrained,
				Status: metav1.ConditionTrue, Reason: "Somebody"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m")
			w.reconcile("m")
			before := w.get("m")
			w.writeStatus("m", change)
			w.effects.clear()
			w.reconcile("m")
			after := w.get("m")
			was, is := recordedIn(before), recordedIn(after)
			if !was.equal(is) {
				t.Errorf("recorded is %+v, want %+v", is, was)
			}
			if before.Status.Phase != after.Status.Phase ||
				!equality.Semantic.DeepEqual(before.Status.NodeRef, after.Status.NodeRef) {
				t.Errorf("the status is %+v, want %+v", after.Status, before.Status)
			}
			want(t, "effects", w.effects.of("API Machine", "cloud"), "API Machine patch status")
			w.wantQuiet("m")
		})
	}
}

// A restarted process has nothing to compare the status with.
func TestRestartedProcessTrustsTheStatus(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Instance.Type = "another" })
	w.restart()
	w.wantQuiet("m")
	if got := w.get("m").Status.Instance.Type; got != "another" {
		t.Errorf("the type is %q", got)
	}
}

// Rule: recorded-status-put-back.
func TestRestartedProcessReadsAnInstanceThatIsNotRecorded(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1beta1.MachineStatus){
		"no instance":                    func(s *v1beta1.MachineStatus) { s.Instance = nil },
		"an empty instance":              func(s *v1beta1.MachineStatus) { s.Instance = &v1beta1.InstanceStatus{} },
		"an instance without a provider": func(s *v1beta1.MachineStatus) { s.Instance.Provider = "" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m")
			before := w.get("m")
			w.writeStatus("m", change)
			w.restart()
			w.reconcile("m")
			if was, is := recordedIn(before), recordedIn(w.get("m")); !was.equal(is) {
				t.Errorf("recorded is %+v, want %+v", is, was)
			}
			w.wantQuiet("m")
		})
	}
}

// Rule: operation-time-bounded.
func TestInvalidOperationTimeIsReplacedByNow(t *testing.T) {
	t.Parallel()
	at := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, test := range map[string]struct{ written, want *metav1.Time }{
		"none":      {nil, &metav1.Time{Time: at}},
		"far ahead": {&metav1.Time{Time: at.AddDate(8000, 0, 0)}, &metav1.Time{Time: at}},
		"ahead by the difference of clocks": {&metav1.Time{Time: at.Add(time.Minute)},
			&metav1.Time{Time: at.Add(time.Minute)}},
		"before": {&metav1.Time{Time: at.Add(-time.Hour)}, &metav1.Time{Time: at.Add(-time.Hour)}},
	} {
		p := &pass{machine: &v1beta1.Machine{}, now: at}
		p.machine.Status.LastOperation = &v1beta1.LastOperation{LastUpdateTime: test.written}
		if got := p.operationBegan(); !got.Equal(test.want.Time) ||
			!p.machine.Status.LastOperation.LastUpdateTime.Equal(test.want) {
			t.Errorf("%s: the operation began at %s, want %s", name, got, test.want)
		}
	}
	if got := (&pass{machine: &v1beta1.Machine{}, now: at}).operationBegan(); !got.Equal(at) {
		t.Errorf("without an operation, the time is %s", got)
	}
}

// Rule: recorded-node-name-follows.
func TestTheRecordedNameOfANodeFollowsTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Instance.NodeName = "another" })
	w.restart()
	w.reconcile("m")
	if got := w.get("m").Status.Instance.NodeName; got != m.Status.NodeRef.Name {
		t.Errorf("the name is %q, want %q", got, m.Status.NodeRef.Name)
	}
}

// An attempt is never repeated, whatever another client writes.
//
// Rule: recorded-status-put-back.
func TestAnAttemptDoesNotGoBack(t *testing.T) {
	known := &recorded{launch: &v1beta1.LaunchStatus{Attempt: 3}}
	for name, test := range map[string]struct {
		is   v1beta1.LaunchStatus
		want int32
	}{
		"an earlier one":           {v1beta1.LaunchStatus{Attempt: 2}, 3},
		"a step of an earlier one": {v1beta1.LaunchStatus{Attempt: 2, Step: v1beta1.LaunchStepReplacing}, 3},
		"the same":                 {v1beta1.LaunchStatus{Attempt: 3}, 3},
		"a later one":              {v1beta1.LaunchStatus{Attempt: 4}, 4},
	} {
		m := &v1beta1.Machine{}
		m.Status.Launch = &test.is
		known.restore(m)
		if got := m.Status.Launch.Attempt; got != test.want || m.Replacing() {
			t.Errorf("%s: the attempt is %d, want %d", name, got, test.want)
		}
	}
}
