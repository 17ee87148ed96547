package machineclass

import (
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// A deployment and its class were deleted and applied again. Old machines are being deleted, and new ones wait for the
// new class.
//
// Rule: class-deletion-is-decided.
func TestWaitingMachinesDoNotHoldADeletedClass(t *testing.T) {
	b := newBench(t, &scripted{name: "sim"}, classInDeletion(), testMachine("new"), withInstance("old"))
	if result := b.reconcile(); result.RequeueAfter != resolve.DeletionDecision {
		t.Errorf("requeued after %s, want the first decision after %s", result.RequeueAfter, resolve.DeletionDecision)
	}
	b.wantDeletion(v1beta1.ReasonDeletionStarted, "1 Machine with an instance and 1 Machine that may have requested")

	b.deleteMachine("old")
	b.clock.SetTime(noon.Add(resolve.DeletionDecision))
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonWithdrawn, "that may have requested an instance (first: new)")

	b.releaseClass("new")
	b.reconcile()
	if b.classExists() {
		t.Errorf("the class still exists: %+v", b.class().Status)
	}
}

// The class of a running fleet was deleted, for example by a GitOps tool or an administrator.
//
// Rule: class-deletion-is-decided.
func TestDeletedClassServesMachinesThatStay(t *testing.T) {
	b := newBench(t, &scripted{name: "sim"}, classInDeletion(), withInstance("m"), testMachine("replacement"))
	b.clock.SetTime(noon.Add(resolve.DeletionDecision))
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonInUse, "The class serves its Machines")
	if !resolve.CanCreate(b.class()) {
		t.Error("no instance would be created from the class")
	}
	b.deleteMachine("m")
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonWithdrawn, "replacement")
	if resolve.CanCreate(b.class()) || !b.classExists() {
		t.Error("the class still serves, or was deleted")
	}
}

// The controller first records in the class's status that no instance may be created, and then checks the Machines for
// the last time. If a Machine is launched between these two steps, the launch fails or the Machine prevents the
// deletion of the class.
//
// Rule: class-deletion-is-decided.
func TestClassIsWithdrawnBeforeTheLastCheckOfItsMachines(t *testing.T) {
	class := classInDeletion()
	class.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionDeleting, Status: metav1.ConditionTrue,
		Reason: v1beta1.ReasonInUse}}
	b := newBench(t, &scripted{name: "sim"}, class)
	live := newBench(t, &scripted{name: "sim"}, testMachine("launching"))
	b.LiveClient = live.cached
	b.clock.SetTime(noon.Add(time.Hour))
	b.reconcile()
	b.wantDeletion(v1beta1.ReasonWithdrawn, "")
	if !b.classExists() || b.writes != 1 {
		t.Errorf("class exists: %v, want true; %d writes, want 1", b.classExists(), b.writes)
	}
}

func TestHoldersAreCountedByTheirState(t *testing.T) {
	now := metav1.NewTime(noon)
	leaving := withInstance("leaving")
	leaving.DeletionTimestamp = &now
	replacing := testMachine("replacing")
	replacing.Status.Launch = &v1beta1.LaunchStatus{Step: v1beta1.LaunchStepReplacing}
	released := testMachine("released")
	meta.SetStatusCondition(&released.Status.Conditions, releasesClass())
	launchedLater := withInstance("launched-later")
	meta.SetStatusCondition(&launchedLater.Status.Conditions, releasesClass())
	for name, test := range map[string]struct {
		machine *v1beta1.Machine
		want    holders
	}{
		"an instance":                         {withInstance("m"), holders{withInstance: 1, first: "m"}},
		"being deleted":                       {leaving, holders{beingDeleted: 1, first: "leaving"}},
		"an instance that is replaced":        {replacing, holders{withInstance: 1, first: "replacing"}},
		"no record":                           {testMachine("m"), holders{undecidedCount: 1, first: "m"}},
		"no requested instance":               {released, holders{releasedCount: 1}},
		"an instance, with the old condition": {launchedLater, holders{withInstance: 1, first: "launched-later"}},
	} {
		var got holders
		if got.count(test.machine); got != test.want {
			t.Errorf("%s: %+v, want %+v", name, got, test.want)
		}
	}
}

func classInDeletion() *v1beta1.MachineClass {
	class, now := testClass(), metav1.NewTime(noon)
	class.Finalizers, class.DeletionTimestamp = []string{v1beta1.InUseFinalizer}, &now
	return class
}

func withInstance(name string) *v1beta1.Machine {
	m := testMachine(name)
	m.Spec.ProviderID = "sim:///" + name
	return m
}

// releasesClass returns the condition of a Machine that was not launched because its class is being deleted.
func releasesClass() metav1.Condition {
	return metav1.Condition{Type: v1beta1.ConditionLaunched, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonClassDeleting, Message: "m"}
}

func (b *bench) wantDeletion(reason, message string) {
	b.Helper()
	conditions := b.class().Status.Conditions
	deleting := meta.FindStatusCondition(conditions, v1beta1.ConditionDeleting)
	if deleting == nil || deleting.Reason != reason || !strings.Contains(deleting.Message, message) {
		b.Errorf("Deleting is %+v, want %s with %q", deleting, reason, message)
	}
	ready := meta.FindStatusCondition(conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionFalse || ready.Reason != v1beta1.ReasonClassDeleting {
		b.Errorf("Ready is %+v, want False for %s", ready, v1beta1.ReasonClassDeleting)
	}
}

func (b *bench) deleteMachine(name string) {
	b.Helper()
	if err := b.cached.Delete(b.Context(), testMachine(name)); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) releaseClass(name string) {
	b.Helper()
	m := testMachine(name)
	if err := b.cached.Get(b.Context(), client.ObjectKeyFromObject(m), m); err != nil {
		b.Fatal(err)
	}
	meta.SetStatusCondition(&m.Status.Conditions, releasesClass())
	if err := b.cached.Update(b.Context(), m); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) classExists() bool {
	b.Helper()
	class := testClass()
	return b.cached.Get(b.Context(), client.ObjectKeyFromObject(class), class) == nil
}
