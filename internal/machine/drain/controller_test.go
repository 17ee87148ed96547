package drain

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"machinist.dev/machinist/api/v1beta1"
)

// Nothing is reported before the first pass, so the drain of an empty node is never reported as waiting.
//
// Rule: drains-have-own-workers.
func TestEmptyNodeIsDoneInTheFirstPass(t *testing.T) {
	b := newBench(t, aNode("m1"),
		on("m1", aPod("a/static", mirror)), on("m1", aPod("a/job", inPhase(corev1.PodSucceeded))), on("other", aPod("a/web")))
	b.expectOutcome(b.drain("m1"), false, "", "")
	if b.reads != 0 {
		t.Errorf("the request took %d reads", b.reads)
	}
	b.pass(time.Second)
	if next := b.runPass("m1"); next != 0 {
		t.Errorf("a completed drain is requeued after %s", next)
	}
	if work, triggers := fmt.Sprint(b.work.take()), fmt.Sprint(b.triggers.take()); work != "[m1]" || triggers != "[m1]" {
		t.Errorf("work for %s and triggers of %s, want [m1]", work, triggers)
	}
	o := b.drain("m1")
	b.expectOutcome(o, true, v1beta1.ReasonDrained, "No pod is left to evict.")
	if !o.LastPodGone.Equal(at(time.Second)) {
		t.Errorf("the last pod was gone at %s, want %s", o.LastPodGone, at(time.Second))
	}
	if b.reads != 1 {
		t.Errorf("the drain took %d reads, want 1", b.reads)
	}
	volumes := b.VolumesDetached(context.Background(), volumesRequest("m1", o.LastPodGone))
	b.expectOutcome(volumes, true, v1beta1.ReasonVolumesDetached, "All volumes that other nodes may need are detached.")
	if b.reads != 2 {
		t.Errorf("the drain and the wait for volumes took %d reads, want 2", b.reads)
	}
	if work, triggers := b.work.take(), b.triggers.take(); work != nil || triggers != nil {
		t.Errorf("work for %v and triggers of %v, want none", work, triggers)
	}
}

func TestWorkersEvictPodsInTurn(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")), on("m1", aPod("a/db")),
		on("m1", aPod("a/dns", withPriority(2_000_000_000))))
	b.expectOutcome(b.drain("m1"), false, "", "")
	b.expectEvictions()
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Fatalf("work for %s, want [m1]", got)
	}
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("the next check is after %s, want 1s", next)
	}
	b.expectEvictions("db", "web")
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s after the first pass, want [m1]", got)
	}
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
	b.pass(time.Second)
	b.runPass("m1")
	b.expectEvictions("dns")
	if triggers := b.triggers.take(); triggers != nil {
		t.Errorf("triggers of %v although there is no change", triggers)
	}
	b.pass(time.Second)
	if next := b.runPass("m1"); next != 0 {
		t.Errorf("a completed drain is requeued after %s", next)
	}
	if got := fmt.Sprint(b.triggers.take()); got != "[m1]" {
		t.Errorf("triggers of %s, want [m1]", got)
	}
	o := b.drain("m1")
	b.expectOutcome(o, true, v1beta1.ReasonDrained, "No pod is left to evict.")
	if !o.LastPodGone.Equal(at(2 * time.Second)) {
		t.Errorf("the last pod was gone at %s", o.LastPodGone)
	}
	if got := testutil.ToFloat64(b.metrics.evictions.WithLabelValues("evicted")); got != 3 {
		t.Errorf("counted %v evictions, want 3", got)
	}
}

// Rule: drains-have-own-workers.
func TestSlowEvictionsReleaseTheWorker(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")), on("m1", aPod("a/web-3")))
	b.callTime = time.Second
	b.drain("m1")
	b.work.take()
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Errorf("work for %s, want [m1] at once", got)
	}
	b.runPass("m1")
	b.expectEvictions("web-3")
}

func TestPodsOfAnotherNodeWithTheSameNameAreNotEvicted(t *testing.T) {
	for name, node := range map[string]*corev1.Node{
		"another": {ObjectMeta: metav1.ObjectMeta{Name: "m1", UID: "another"}},
		"none":    aNode("m2"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, node, on("m1", aPod("a/web")))
			b.drain("m1")
			b.runPass("m1")
			b.expectEvictions()
			b.expectOutcome(b.drain("m1"), true, v1beta1.ReasonSkipped, "The Node no longer exists.")
		})
	}
}

// Rule interruption-drains-at-once: the caller's cache may still show a notice that was withdrawn. If the notice was
// withdrawn, no pods may be evicted early.
func TestNodeIsReadAgainBeforePodsAreEvictedForANotice(t *testing.T) {
	for name, test := range map[string]struct {
		taints []corev1.Taint
		want   []string
	}{
		"withdrawn": {},
		"present":   {[]corev1.Taint{{Key: "aws-node-termination-handler/spot-itn"}}, []string{"web"}},
	} {
		t.Run(name, func(t *testing.T) {
			node := aNode("m1")
			node.Spec.Taints = test.taints
			b := newBench(t, node, on("m1", aPod("a/web")))
			announced := request("m1")
			announced.InterruptionAnnounced, announced.Deadline = true, at(10*time.Second)
			b.Drain(announced)
			if next := b.runPass("m1"); len(test.want) == 0 && next != maxRecheck {
				t.Errorf("the machine is requeued after %s, want %s", next, maxRecheck)
			}
			b.expectEvictions(test.want...)
		})
	}
}

func TestEvictionOfADeletedPodIsNotAFailure(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.evictionErrors["web"] = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")
	b.drain("m1")
	b.runPass("m1")
	if o := b.drain("m1"); len(o.Blockers) != 0 {
		t.Errorf("got blockers %+v", o.Blockers)
	}
}

func TestChangedRequestIsCheckedAgain(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	wanted := request("m1")
	for i, test := range []struct {
		change func()
		again  bool
	}{
		{func() {}, true},
		{func() {}, false},
		{func() { wanted.Start, wanted.Deadline = wanted.Start.Local(), wanted.Deadline.Local() }, false},
		{func() { wanted.Deadline = wanted.Deadline.Add(time.Minute) }, true}, // after an outage
		{func() { wanted.NotReadySince = at(-time.Minute) }, true},
		{func() { wanted.NotReadySince = wanted.NotReadySince.Local() }, false},
		{func() { wanted.NodeReachable = false }, true},
		{func() {}, false},
	} {
		test.change()
		b.Drain(wanted)
		if again := b.work.take() != nil; again != test.again {
			t.Errorf("%d: checked again: %t, want %t", i, again, test.again)
		}
	}
}

// A machine that is updated in place twice is drained twice.
func TestDrainAfterForgetIsANewDrain(t *testing.T) {
	b := newBench(t, aNode("m1"))
	b.drain("m1")
	b.runPass("m1")
	if err := b.target.Create(context.Background(), on("m1", aPod("a/web"))); err != nil {
		t.Fatal(err)
	}
	later := request("m1")
	later.Start, later.Deadline = at(time.Hour), at(3*time.Hour)
	b.pass(time.Hour)
	b.expectOutcome(b.Drain(later), true, v1beta1.ReasonDrained, "No pod is left to evict.")
	b.Forget(key("m1"))
	b.Drain(later)
	b.runPass("m1")
	b.expectEvictions("web")
	b.expectOutcome(b.Drain(later), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
}
