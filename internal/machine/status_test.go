package machine

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// writeStatus changes the status of a Machine, as any client with the necessary permission could do.
func (w *world) writeStatus(name string, change func(*v1beta1.MachineStatus)) {
	w.t.Helper()
	m := w.get(name)
	before := m.DeepCopy()
	change(&m.Status)
	if err := w.api.Status().Patch(w.t.Context(), m, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func fillConditions(s *v1beta1.MachineStatus) {
	for i := 0; len(s.Conditions) < 32; i++ {
		s.Conditions = append(s.Conditions, metav1.Condition{
			Type: fmt.Sprintf("example.com/%d", i), Status: metav1.ConditionTrue, Reason: "Other",
			LastTransitionTime: metav1.Now(),
		})
	}
}

// The API server rejects a status with more than 32 conditions.
//
// Rule: own-conditions-have-space.
func TestConditionsOfOthersDoNotKeepAStatusFromBeingWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("new")
	w.writeStatus("new", fillConditions)
	w.reconcile("new")
	m := w.get("new")
	w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceLaunched)
	if meta.FindStatusCondition(m.Status.Conditions, "example.com/0") == nil {
		t.Error("there was room for conditions of others, but they were removed")
	}
}

// Rule: own-conditions-have-space.
func TestConditionsOfOthersDoNotDelayADeletion(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("old")
	w.writeStatus("old", fillConditions)
	w.cloud.Fail("Delete", provider.Errorf(provider.Unavailable, "busy"))
	w.delete("old")
	w.reconcile("old")
	w.wantCondition(w.get("old"), v1beta1.ConditionDeleting, metav1.ConditionTrue, v1beta1.ReasonProviderUnavailable)
	for range 10 {
		if w.get("old") == nil {
			break
		}
		w.step(w.reconcile("old").RequeueAfter)
	}
	w.wantNothingLeft("old")
}

// Rule: handwritten-counts-harmless.
func TestHandwrittenCountsDoNotOverflow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.writeStatus("m", func(s *v1beta1.MachineStatus) {
		s.LastOperation = &v1beta1.LastOperation{Type: v1beta1.OperationCreate, State: v1beta1.OperationProcessing,
			Attempts: math.MaxInt32}
		s.Launch = &v1beta1.LaunchStatus{Attempt: 1000000}
	})
	w.cloud.Fail("Create", provider.Errorf(provider.ResourceExhausted, "none left"))
	w.reconcile("m")
	if last := w.get("m").Status.LastOperation; last.Attempts != math.MaxInt32 ||
		!strings.Contains(last.Description, "none left") {
		t.Errorf("recorded %+v", last)
	}
	w.step(time.Hour)
	w.reconcile("m")
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionTrue, v1beta1.ReasonInstanceLaunched)
	if n := m.NextLaunchAttempt(); n != 1000000 {
		t.Errorf("the next attempt is %d", n)
	}
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: math.MaxInt32}
	if n := m.NextLaunchAttempt(); n != 1000000 {
		t.Errorf("the attempt after 2^31-1 is %d", n)
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
