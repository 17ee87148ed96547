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

func TestRestartedControllerContinuesTheDrain(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.evictionErrors["web"] = refusedBy("web", 0)
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("web")
	b.pass(2*time.Hour - 30*time.Second)
	b.restart(Options{})
	b.drain("m1")
	b.runPass("m1")
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDrainForced,
		"The drain deadline is near: deleting the pods of node m1.")
	b.expectEvictions()
	if got := fmt.Sprint(b.deletions); got != "[web 30]" {
		t.Errorf("deletions %s, want [web 30]", got)
	}
}

func TestDrainReportsAndSurvivesAnOutage(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")))
	b.unreachable = errors.New("connection refused")
	const report = `list the pods of node "m1": connection refused`
	b.drain("m1")
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDrainError, report)
	b.unreachable = nil
	b.onEvict = func(string) { b.unreachable = errors.New("connection refused") }
	b.runPass("m1")
	b.expectEvictions("web-1") // The pass ends without an attempt for web-2.
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.unreachable, b.onEvict = nil, nil
	b.pass(time.Minute)
	b.runPass("m1")
	b.expectEvictions("web-2", "web-1") // The eviction of web-1 may take long.
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
}

// No pods may be deleted while the controller cannot list them.
//
// Rule: drain-names-blockers.
func TestDrainReportsMissingPermission(t *testing.T) {
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	const rejection = ` The error is: list the pods of node "m1": pods is forbidden: no. Grant the permission, or set the annotation machinist.dev/force-delete to delete the machine without a drain.`
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.unreachable = forbidden
	wanted := request("m1")
	wanted.Deadline = at(3 * time.Minute)
	b.Drain(wanted)
	b.pass(b.runPass("m1"))
	o := b.Drain(wanted)
	b.expectOutcome(o, false, v1beta1.ReasonDrainError,
		"Machinist has no permission to list the pods of node m1, "+
			"and does not evict pods that it cannot see."+rejection)
	if !o.PermissionDenied {
		t.Error("Denied is not set")
	}
	b.triggers.take()
	var waits []time.Duration
	for b.clock.Now().Before(wanted.Deadline) {
		next := b.runPass("m1")
		waits = append(waits, next)
		b.pass(next)
	}
	if got, want := fmt.Sprint(waits), "[2s 4s 8s 16s 32s 1m0s 57s]"; got != want {
		t.Errorf("retried after %s, want %s", got, want)
	}
	if triggers := b.triggers.take(); triggers != nil {
		t.Errorf("triggers of %v although there is no change", triggers)
	}
	b.runPass("m1")
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s after the deadline, want [m1]", got)
	}
	b.expectOutcome(b.Drain(wanted), false, v1beta1.ReasonDrainError,
		"The drain deadline has passed, but Machinist has no permission to list the pods of node m1, "+
			"and does not delete pods that it cannot see."+rejection)
	if b.evictions != nil || b.deletions != nil {
		t.Errorf("evicted %v and deleted %v, want neither", b.evictions, b.deletions)
	}

	// A forced drain ends. A drain that gets the permission continues, and deletes pods because the deadline has
	// passed.
	another := New(Options{Target: b.target, Clock: b.clock, Evict: b.evict})
	forced := wanted
	forced.Force = true
	if o := another.Drain(forced); !o.IsDone {
		t.Errorf("got %+v", o)
	}
	b.unreachable = nil
	b.runPass("m1")
	if got := fmt.Sprint(b.deletions); got != "[web 1]" {
		t.Errorf("deletions %s, want [web 1]", got)
	}
	if o := b.Drain(wanted); o.PermissionDenied || o.Reason != v1beta1.ReasonDrainForced {
		t.Errorf("got %+v", o)
	}
	b.unreachable = forbidden
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("denied again, the drain is retried after %s, want 1s", next)
	}
}
