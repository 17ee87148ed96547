package integration

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: exact-number-of-machines.
func TestCreatesExactlyAsManyAsAreWanted(t *testing.T) {
	b := newBench(t)
	var names atomic.Int64 // Two random names may be equal, and the set would need more calls.
	b.options.NewName = func(set string) string { return fmt.Sprintf("%s-%05d", set, names.Add(1)) }
	b.restart()
	b.must(b.admin.Create(b.ctx, &v1beta1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "small"},
		Spec:       v1beta1.MachineClassSpec{Provider: "sim", ProviderSpec: rawObject()},
	}))
	b.newSet(50)
	b.reconcile()
	for _, m := range b.wantLives(50) {
		if m.Labels[v1beta1.LabelProvider] != "sim" || m.Labels[v1beta1.LabelMachineSet] != "workers" ||
			m.Labels["pool"] != "workers" {
			t.Errorf("labels %v", m.Labels)
		}
		if !slices.Contains(m.Finalizers, v1beta1.MachineFinalizer) {
			t.Errorf("finalizers %v", m.Finalizers)
		}
	}
	// The batches are 1, 2, 4, 8, 16 and 19 machines, each after a live read of the set. A new process lists by the
	// selector and, because machines are missing, by the label with the set's name.
	b.wantCalls(map[string]int{"create": 50, "live get *v1beta1.MachineSet": 6, "live list *v1beta1.MachineList": 2,
		"patch status": 1, "patch": 0, "delete": 0})
	set := b.set()
	if set.Status.Replicas != 50 || set.Status.FullyLabeledReplicas != 50 ||
		set.Status.ObservedGeneration != set.Generation {
		t.Errorf("status %+v", set.Status)
	}
	if events := b.events.all(); len(events) != 1 || !strings.Contains(events[0], "Created 50 machines") {
		t.Errorf("events %q, want one for all", events)
	}

	b.reconcile()
	b.wantCalls(map[string]int{"create": 0, "delete": 0, "patch": 0, "patch status": 0,
		"live list *v1beta1.MachineList": 0, "live get *v1beta1.MachineSet": 0})
}

// Rule: exact-number-of-machines.
func TestFirstDecisionOfAProcessIsMadeOnALiveList(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	for _, m := range b.wantLives(3) {
		if !strings.HasPrefix(m.Name, "workers-") || len(m.Name) != len("workers-")+5 {
			t.Errorf("name %q", m.Name)
		}
	}

	b.hooks.machines = func(list *v1beta1.MachineList) { list.Items = nil }
	b.hooks.seen = func() string { return "1" }
	b.restart()
	b.took()
	b.reconcile()
	b.wantLives(3)
	b.wantCalls(map[string]int{"create": 0, "live list *v1beta1.MachineList": 1})

	b.reconcile()
	b.wantLives(3)
	// The cache still does not contain what the first live list returned, so the set lists live again.
	b.wantCalls(map[string]int{"create": 0, "live list *v1beta1.MachineList": 1})
}

// The set waits until the cache contains the set's own writes. If the cache catches up, the set reads the cache again
// instead of listing machines live.
func TestACacheThatCatchesUpDuringAListIsTrusted(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	b.restart()
	b.reconcile() // Its first decision needs a live list, which says how new the cache must be.
	b.took()

	seen := "1"
	b.hooks.seen = func() string { return seen }
	b.hooks.machines = func(list *v1beta1.MachineList) {
		if seen == "1" {
			list.Items, seen = nil, "999999999999"
		}
	}
	b.reconcile()
	b.wantLives(3)
	b.wantCalls(map[string]int{"create": 0, "live list *v1beta1.MachineList": 0})
}

// A live LIST uses the set's selector. A machine that no longer matches the selector still counts until it is released.
func TestALiveListMissesNothingThatTheSetControls(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.reconcile()
	stale := b.machines()[0]
	b.changeMachine(stale.Name, func(m *v1beta1.Machine) { m.Labels["pool"] = "others" })
	b.must(b.admin.Delete(b.ctx, &b.machines()[1]))
	b.hooks.machines = func(list *v1beta1.MachineList) {
		for i := range list.Items {
			if list.Items[i].Name == stale.Name {
				list.Items[i] = stale
			}
		}
	}
	b.restart()
	b.reconcile()
	if metav1.GetControllerOf(b.machine(stale.Name)) != nil {
		t.Errorf("%s no longer matches and was not released", stale.Name)
	}
}

func TestFirstLiveListTrimsWhatADyingLeaderMade(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.reconcile()
	b.runAll()
	old := b.lives()[0]
	for i := range 2 {
		b.orphan(fmt.Sprintf("workers-late%d", i), func(m *v1beta1.Machine) { m.OwnerReferences = old.OwnerReferences })
	}
	b.restart()
	b.reconcile()
	for _, m := range b.wantLives(2) {
		if strings.Contains(m.Name, "late") {
			t.Errorf("%s was kept, and a running machine deleted", m.Name)
		}
	}
}

// A creation succeeds, but its response is lost.
//
// Rule: exact-number-of-machines.
func TestLostAnswersDoNotMakeTwins(t *testing.T) {
	b := newBench(t)
	b.newSet(1)
	b.reconcile()
	stale := b.machines()
	list := &v1beta1.MachineList{}
	b.must(b.admin.List(b.ctx, list))
	seen := list.ResourceVersion
	b.scale(2)
	b.hooks.create = func(c client.Client, m *v1beta1.Machine) error {
		b.must(c.Create(b.ctx, m))
		return context.DeadlineExceeded
	}
	b.hooks.machines = func(list *v1beta1.MachineList) { list.Items = slices.Clone(stale) }
	b.hooks.seen = func() string { return seen }
	for range 3 {
		b.reconcile()
		b.clock.SetTime(b.clock.Now().Add(time.Minute))
	}
	b.wantLives(2)
	b.wantCalls(map[string]int{"create": 2})
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionFalse, v1beta1.ReasonNoFailure)
}

// Rule: unique-machine-names.
func TestNamesThatExist(t *testing.T) {
	b := newBench(t)
	b.orphan("taken", func(m *v1beta1.Machine) { m.Labels = map[string]string{"pool": "others"} })
	names := []string{"taken", "first", "first", "second"}
	var mu sync.Mutex
	b.options.NewName = func(string) string {
		mu.Lock()
		defer mu.Unlock()
		name := names[0]
		names = names[1:]
		return name
	}
	b.restart()
	b.newSet(2)
	b.reconcile()
	lives := b.wantLives(2)
	if lives[0].Name != "first" || lives[1].Name != "second" {
		t.Errorf("machines %s and %s", lives[0].Name, lives[1].Name)
	}
	if metav1.GetControllerOf(b.machine("taken")) != nil {
		t.Error("a machine that existed was adopted by the way")
	}
	if events := b.events.all(); len(events) != 1 || !strings.Contains(events[0], "Created 2 machines: first, second.") {
		t.Errorf("events %q", events)
	}
}

// Rule: unique-machine-names.
func TestRefusedCreatesAreFewAndBackOff(t *testing.T) {
	b := newBench(t)
	b.newSet(50)
	allowed := 3
	var mu sync.Mutex
	b.hooks.create = func(c client.Client, m *v1beta1.Machine) error {
		mu.Lock()
		defer mu.Unlock()
		if allowed == 0 {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "machines"}, m.Name, fmt.Errorf("exceeded quota"))
		}
		allowed--
		return c.Create(b.ctx, m)
	}
	result := b.reconcile()
	b.wantLives(3)
	b.wantCalls(map[string]int{"create": 7}) // 1 and 2 succeed, the next 4 do not.
	if result.RequeueAfter <= 0 || result.RequeueAfter > time.Second {
		t.Errorf("looks again after %s, want 1s", result.RequeueAfter)
	}
	c := b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue, v1beta1.ReasonMachineCreateFailed)
	if !strings.Contains(c.Message, "exceeded quota") {
		t.Errorf("message %q", c.Message)
	}
	b.wantCondition(v1beta1.ConditionScalingUp, metav1.ConditionTrue, v1beta1.ReasonScalingUp)

	b.reconcile() // Another event triggered a pass.
	b.wantCalls(map[string]int{"create": 0, "patch status": 0})
	b.clock.SetTime(b.clock.Now().Add(2 * time.Second))
	if result = b.reconcile(); result.RequeueAfter != 2*time.Second {
		t.Errorf("looks again after %s, want 2s", result.RequeueAfter)
	}
	b.wantCalls(map[string]int{"create": 1})

	b.scale(4) // With another spec, the creation may succeed.
	allowed = 100
	b.reconcile()
	b.wantLives(4)
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionFalse, v1beta1.ReasonNoFailure)
}

// Rule: exact-number-of-machines.
func TestAStaleSetIsNotActedUpon(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.reconcile()
	b.runAll()
	b.hooks.set = func(set *v1beta1.MachineSet) { set.Spec.Replicas = ptr.To[int32](10); set.Generation-- }
	b.reconcile()
	b.wantLives(2)
	b.hooks.set = func(set *v1beta1.MachineSet) { set.Spec.Replicas = ptr.To[int32](0); set.Generation-- }
	b.reconcile()
	b.wantLives(2)
}

// Rule: frozen-set-only-deletes.
func TestASetBeingDeletedMakesNothing(t *testing.T) {
	b := newBench(t)
	b.newSet(2, func(s *v1beta1.MachineSet) { s.Finalizers = []string{metav1.FinalizerDeleteDependents} })
	b.orphan("lost")
	b.must(b.admin.Delete(b.ctx, b.set()))
	b.reconcile()
	b.wantLives(0)
	b.wantCondition(v1beta1.ConditionAdoptionSkipped, metav1.ConditionTrue, v1beta1.ReasonSetDeleting)
	b.wantCondition(v1beta1.ConditionScalingUp, metav1.ConditionFalse, v1beta1.ReasonAtDesiredReplicas)

	// The set must not create machines even if the cache does not show the deletion of the set yet.
	b.hooks.set = func(set *v1beta1.MachineSet) { set.DeletionTimestamp = nil }
	b.restart()
	b.reconcile()
	b.wantLives(0)
}

// Rule: machine-ceiling.
func TestCeiling(t *testing.T) {
	b := newBench(t)
	b.newSet(10)
	b.reconcile()
	for range 5 { // Nothing ever finishes its deletion.
		b.scale(0)
		b.reconcile()
		b.scale(10)
		b.reconcile()
	}
	if n := len(b.machines()); n != 30 {
		t.Errorf("%d machines exist, want 2×10+10", n)
	}
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue, v1beta1.ReasonTooManyMachines)
	for _, m := range b.machines() {
		if !m.DeletionTimestamp.IsZero() {
			b.removeFinalizer(m.Name)
		}
	}
	b.reconcile()
	b.wantLives(10)
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionFalse, v1beta1.ReasonNoFailure)
}

// Rule: frozen-set-only-deletes.
func TestFreezeStopsCreationOnly(t *testing.T) {
	b := newBench(t)
	b.newSet(2)
	b.reconcile()
	b.changeSet(func(s *v1beta1.MachineSet) { s.Labels = map[string]string{v1beta1.LabelFreeze: ""} })
	b.scale(5)
	b.reconcile()
	b.wantLives(2)
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionTrue, v1beta1.ReasonFrozenByLabel)
	b.scale(1)
	b.reconcile()
	b.wantLives(1)
	b.changeSet(func(s *v1beta1.MachineSet) { s.Labels = nil })
	b.scale(3)
	b.reconcile()
	b.wantLives(3)
	b.wantCondition(v1beta1.ConditionFrozen, metav1.ConditionFalse, v1beta1.ReasonThawed)
}

func TestDeletesAreConditional(t *testing.T) {
	b := newBench(t)
	b.newSet(3)
	b.reconcile()
	b.runAll()
	// After the set has chosen a victim, an autoscaler annotates another machine.
	first := true
	b.hooks.delete = func(c client.Client, m *v1beta1.Machine, options ...client.DeleteOption) error {
		if first {
			first = false
			b.changeMachine(m.Name, func(m *v1beta1.Machine) { m.Labels["touched"] = "" })
		}
		err := c.Delete(b.ctx, m, options...)
		if apierrors.IsConflict(err) {
			b.called("conflict")
		}
		return err
	}
	b.took()
	b.scale(2)
	if result := b.reconcile(); result.RequeueAfter <= 0 {
		t.Error("after a conflict the set does not look again")
	}
	b.wantCalls(map[string]int{"delete": 1, "conflict": 1})
	b.wantLives(3)
	b.reconcile()
	b.wantLives(2)
}

func TestDeletionFailureIsShown(t *testing.T) {
	b := newBench(t)
	b.newSet(1)
	b.reconcile()
	b.hooks.delete = func(client.Client, *v1beta1.Machine, ...client.DeleteOption) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusForbidden,
			Reason: metav1.StatusReasonForbidden, Message: "not you"}}
	}
	b.scale(0)
	if _, err := b.try(); err == nil {
		t.Error("a deletion that failed is not tried again")
	}
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionTrue, v1beta1.ReasonMachineDeleteFailed)
	b.hooks.delete = nil
	b.reconcile()
	b.wantLives(0)
	b.wantCondition(v1beta1.ConditionReplicaFailure, metav1.ConditionFalse, v1beta1.ReasonNoFailure)
}
