package drain

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

func TestARestartedControllerGoesOn(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.refuse["web"] = refusedBy("web", 0)
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("web")
	b.pass(2*time.Hour - 30*time.Second)
	b.restart(Options{})
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDrainForced, "The deadline is near: deleting the pods of node m1.")
	b.runPass("m1")
	b.expectEvictions()
	if got := fmt.Sprint(b.deletions); got != "[web 30]" {
		t.Errorf("deletions %s, want [web 30]", got)
	}
}

func TestAnOutageIsReportedAndSurvived(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")))
	b.unreachable = errors.New("connection refused")
	const report = `list the pods of node "m1": connection refused`
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDrainError, report)
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.unreachable = nil
	b.onEvict = func(string) { b.unreachable = errors.New("connection refused") }
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.expectEvictions("web-1") // and not the next one
	b.unreachable, b.onEvict = nil, nil
	b.pass(time.Minute)
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
}

// TestADrainThatMayNotSeeItsPodsSaysSo protects a person from a machine that waits for ever without a word, and pods
// that nobody has seen from being killed.
//
// Rule: drain-names-blockers.
func TestADrainThatMayNotSeeItsPodsSaysSo(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	const rejection = ` list the pods of node "m1": pods is forbidden: no. The annotation machinist.dev/force-delete goes on without.`
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.unreachable = forbidden
	wanted := request("m1")
	wanted.Deadline = at(3 * time.Minute)
	o := b.Drain(context.Background(), wanted)
	b.expectOutcome(o, false, v1beta1.ReasonDrainError,
		"What is on node m1 may not be read, and no pod is evicted unseen."+rejection)
	if !o.Denied {
		t.Error("it is not said to be a matter of permission")
	}
	var waits []time.Duration
	for b.clock.Now().Before(wanted.Deadline) {
		next := b.runPass("m1")
		waits = append(waits, next)
		b.pass(next)
	}
	if got, want := fmt.Sprint(waits), "[2s 4s 8s 16s 32s 1m0s 58s]"; got != want {
		t.Errorf("tried again after %s, want %s", got, want)
	}
	if triggers := b.triggers.take(); triggers != nil {
		t.Errorf("triggers of %v although there is no change", triggers)
	}
	b.runPass("m1")
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s when the deadline has passed, want [m1]", got)
	}
	b.expectOutcome(b.Drain(context.Background(), wanted), false, v1beta1.ReasonDrainError,
		"The deadline has passed, but what is on node m1 may not be read, and no pod is killed unseen."+rejection)
	if b.evictions != nil || b.deletions != nil {
		t.Errorf("evictions of %v and deletions of %v", b.evictions, b.deletions)
	}

	// Forced, it goes on; and so it does with the permission, as any other drain that is late.
	another := New(Options{Target: b.target, Clock: b.clock, Evict: b.evict})
	forced := wanted
	forced.Force = true
	if o := another.Drain(context.Background(), forced); !o.Done {
		t.Errorf("got %+v", o)
	}
	b.unreachable = nil
	b.runPass("m1")
	if got := fmt.Sprint(b.deletions); got != "[web 1]" {
		t.Errorf("deletions %s, want [web 1]", got)
	}
	if o := b.Drain(context.Background(), wanted); o.Denied || o.Reason != v1beta1.ReasonDrainForced {
		t.Errorf("got %+v", o)
	}
	b.unreachable = forbidden
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("denied again, it is tried again after %s, want 1s", next)
	}
}
