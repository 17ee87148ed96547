package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
)

// Rule deletion-waits-for-target: even a long outage may end soon.
func TestDeletionInAnOutageWaitsBeforeLeavingAnythingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.unreachable(r)
	w.step(time.Hour)
	w.delete("m")
	if result := w.reconcile("m"); w.get("m") == nil || result.RequeueAfter == 0 || result.RequeueAfter > targetPoll {
		t.Fatalf("the machine is gone, or checks again after %s", result.RequeueAfter)
	}
	w.back(r)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule deletion-waits-for-target: the process notices the end of an outage only some seconds later.
func TestDeletionInAnOutageReadsOnceMoreBeforeLeavingAnythingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.delete("m")
	w.unreachable(r)
	w.reconcile("m")
	w.step(targetPatience)
	w.targetDown = false
	for range 2 {
		if result := w.reconcile("m"); w.get("m") == nil || len(w.cloud.LiveInstances()) == 0 || result.RequeueAfter != targetPoll {
			t.Fatalf("the deletion continues without a cluster that answers, or checks again after %s", result.RequeueAfter)
		}
	}
	w.wantQuiet("m")
	w.back(r)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule deletion-waits-for-target: a single failed call after an outage does not begin another outage.
func TestOneFailureAfterAnOutageLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.delete("m")
	w.unreachable(r)
	w.reconcile("m")
	w.back(r)
	w.cloud.Shutdown = targetPatience
	w.reconcile("m")
	w.step(targetPatience)
	failed := false
	w.refuse = func(_ string, o runtime.Object) error {
		if _, isNode := o.(*corev1.Node); isNode && !failed {
			failed = true
			return apierrors.NewServiceUnavailable("connection reset")
		}
		return nil
	}
	if _, err := w.pass("m"); err == nil || !failed {
		t.Fatalf("the failed call was not reported: %v", err)
	}
	w.refuse = nil
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// Rule deletion-waits-for-target: the duration of an outage does not count for the first call after the outage.
func TestOneFailureRightAfterAnOutageLeavesNothingBehind(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.watched()
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	w.delete("m")
	w.unreachable(r)
	w.reconcile("m")
	w.step(targetPatience)
	w.back(r)
	w.refuse = func(_ string, o runtime.Object) error {
		if _, isNode := o.(*corev1.Node); isNode {
			w.refuse = nil
			return apierrors.NewServiceUnavailable("connection reset")
		}
		return nil
	}
	if _, err := w.pass("m"); err == nil || w.refuse != nil {
		t.Fatalf("the failed call was not reported: %v", err)
	}
	w.untilGone("m")
	w.wantNothingLeft("m")
}
