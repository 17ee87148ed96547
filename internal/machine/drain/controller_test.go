package drain

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

func TestAnEmptyNodeIsDoneInTheFirstCall(t *testing.T) {
	b := newBench(t, aNode("m1"),
		on("m1", aPod("a/static", mirror)), on("m1", aPod("a/job", inPhase(corev1.PodSucceeded))), on("other", aPod("a/web")))
	o := b.drain("m1")
	b.expectOutcome(o, true, v1beta1.ReasonDrained, "No pod is left to evict.")
	if !o.LastPodGone.Equal(noon) {
		t.Errorf("the last pod was gone at %s, want %s", o.LastPodGone, noon)
	}
	if b.reads != 1 {
		t.Errorf("it took %d reads, want 1", b.reads)
	}
	volumes := b.VolumesDetached(context.Background(), volumesRequest("m1", o.LastPodGone))
	b.expectOutcome(volumes, true, v1beta1.ReasonVolumesDetached, "No volume that matters is attached.")
	if b.reads != 2 {
		t.Errorf("with its volumes it took %d reads, want 2", b.reads)
	}
	if work, wakes := b.work.take(), b.wakes.take(); work != nil || wakes != nil {
		t.Errorf("work for %v and wakes of %v, want none", work, wakes)
	}
}

func TestPodsAreEvictedByTheWorkersInTurn(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")), on("m1", aPod("a/db")), on("m1", aPod("a/dns", withPriority(2_000_000_000))))
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
	b.expectEvictions()
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Fatalf("work for %s, want [m1]", got)
	}
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("the next look is after %s, want 1s", next)
	}
	b.expectEvictions("db", "web")
	if wakes := b.wakes.take(); wakes != nil {
		t.Errorf("wakes of %v although there is no news", wakes)
	}
	b.pass(time.Second)
	b.runPass("m1")
	b.expectEvictions("dns")
	b.pass(time.Second)
	if next := b.runPass("m1"); next != 0 {
		t.Errorf("a drain that is done wants to come back after %s", next)
	}
	if got := fmt.Sprint(b.wakes.take()); got != "[m1]" {
		t.Errorf("wakes of %s, want [m1]", got)
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

// M-35.
func TestARefusedPodIsNamedAndTriedAgainMoreAndMoreSlowly(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.refuse["web"] = refusedBy("web", 0)
	b.drain("m1")
	var tried []time.Duration
	for b.clock.Now().Before(at(3 * time.Minute)) {
		next := b.runPass("m1")
		for range b.evictions {
			tried = append(tried, b.clock.Since(noon))
		}
		b.evictions = nil
		b.pass(next)
	}
	if got, want := fmt.Sprint(tried), "[0s 5s 15s 35s 1m15s 2m15s]"; got != want {
		t.Errorf("tried at %s, want %s", got, want)
	}
	if got := fmt.Sprint(b.wakes.take()); got != "[m1]" {
		t.Errorf("wakes of %s, want one", got)
	}
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonBlockedByDisruptionBudget, "Evicting the pods of node m1. In the way: "+
		"a/web (The disruption budget web needs 2 healthy pods and has 2 currently).")
}

// M-37.
func TestABudgetIsNamedAndWakesWhatItHeldUp(t *testing.T) {
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web"},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
		Status:     policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, DesiredHealthy: 2},
	}
	b := newBench(t, budget, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	for _, pod := range []string{"web-1", "web-2"} {
		b.refuse[pod] = refusedBy("web", 0)
	}
	for _, machine := range []string{"m2", "m1"} {
		b.drain(machine)
		b.runPass(machine)
		b.pass(time.Second)
	}
	b.expectEvictions("web-2", "web-1")
	o := b.drain("m1")
	b.expectOutcome(o, false, v1beta1.ReasonBlockedByDisruptionBudget, "Evicting the pods of node m1. In the way: "+
		"a/web-1 (PodDisruptionBudget web can never allow it: it needs all of its 2 pods).")
	if len(o.Blocked) != 1 || !o.Blocked[0].Never || o.Blocked[0].Budgets[0] != "web" {
		t.Errorf("got blockers %+v", o.Blocked)
	}

	b.work.take()
	b.budgetChanged(budget) // still none to spare
	if got := b.work.take(); got != nil {
		t.Errorf("work for %v", got)
	}
	budget.Status.DisruptionsAllowed = 1
	b.budgetChanged(budget)
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Fatalf("work for %s, want [m2], which has waited longest", got)
	}
	b.refuse["web-2"] = nil
	b.runPass("m2")
	b.expectEvictions("web-2")
	b.runPass("m1")
	b.expectEvictions()

	budget.Status.DisruptionsAllowed = -1
	b.budgetChanged(budget)
	forced := request("m1")
	forced.Force = true
	b.Drain(context.Background(), forced)
	if len(b.refusals.byMachine) != 0 {
		t.Errorf("refusals of machines that are done are remembered: %v", b.refusals.byMachine)
	}
}

// TestANewBlockerIsReportedAfterHalfAMinute protects that a report that was held back comes as soon as it may.
func TestANewBlockerIsReportedAfterHalfAMinute(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")))
	b.refuse["web-1"], b.refuse["web-2"] = refusedBy("web", 0), refusedBy("web", 0)
	b.drain("m1")
	b.pass(b.runPass("m1"))
	if err := b.target.Create(context.Background(), on("m1", aPod("a/web-2"))); err != nil {
		t.Fatal(err)
	}
	b.pass(4 * time.Second)
	b.wakes.take()
	for b.wakes.take() == nil && b.clock.Now().Before(at(time.Hour)) {
		b.pass(b.runPass("m1"))
	}
	if o := b.drain("m1"); !strings.Contains(o.Message, "web-2") {
		t.Errorf("web-2 is not reported: %s", o.Message)
	}
	// The pass that woke the machine was the one before the clock went on.
	if rewritten := b.memory.machines[key("m1")].drainPass.report.rewritten; !rewritten.Equal(at(30 * time.Second)) {
		t.Errorf("reported at %s, want 30s", rewritten.Sub(noon))
	}
}

// M-35.
func TestTheAPIServerSaysWhenToComeBack(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.refuse["web"] = apierrors.NewTooManyRequests("slow down", 17)
	b.drain("m1")
	b.runPass("m1")
	b.expectEvictions("web")
	b.pass(17*time.Second - 1)
	if next := b.runPass("m1"); next != 1 {
		t.Errorf("the next look is after %s", next)
	}
	b.expectEvictions()
	b.pass(1)
	b.runPass("m1")
	b.expectEvictions("web")
}

func TestEvictionsWaitForTheirPlace(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	limiter := NewLimiter(1)
	b.restart(Options{Evictions: limiter})
	b.drain("m1")
	b.drain("m2")
	b.work.take()
	b.onEvict = func(pod string) {
		b.onEvict = nil
		if next := b.runPass("m2"); next != maxLook {
			t.Errorf("who waits for a place comes back after %s, want %s", next, maxLook)
		}
		if got := b.work.take(); got != nil {
			t.Errorf("work for %v while the place is taken", got)
		}
	}
	b.runPass("m1")
	b.expectEvictions("web-1")
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Errorf("work for %s, want [m2]", got)
	}
	b.runPass("m2")
	b.expectEvictions("web-2")
}

func TestWhoIsForgottenLeavesThePlaceToOthers(t *testing.T) {
	b := newBench(t, aNode("m1"), aNode("m2"), on("m1", aPod("a/web-1")), on("m2", aPod("a/web-2")))
	b.restart(Options{Evictions: NewLimiter(1)})
	b.drain("m1")
	b.drain("m2")
	b.Controller.options.Evictions.acquire(key("x"), nil)
	b.runPass("m1")
	b.runPass("m2")
	b.expectEvictions()
	b.Forget(key("m1"))
	b.work.take()
	b.Controller.options.Evictions.release()
	if got := fmt.Sprint(b.work.take()); got != "[m2]" {
		t.Errorf("work for %s, want [m2]", got)
	}
	b.runPass("m1")
	b.runPass("m2")
	b.expectEvictions("web-2")
}

func TestWhoNoLongerNeedsAPlaceLeavesItToOthers(t *testing.T) {
	leaving := on("m1", aPod("a/web-1"))
	leaving.Finalizers = []string{"test/hold"}
	b := newBench(t, aNode("m1"), aNode("m2"), leaving, on("m2", aPod("a/web-2")))
	limiter := NewLimiter(1)
	b.restart(Options{Evictions: limiter})
	limiter.acquire(key("x"), nil)
	for _, machine := range []string{"m1", "m2"} {
		b.drain(machine)
		b.runPass(machine)
	}
	if err := b.target.Delete(context.Background(), leaving, client.GracePeriodSeconds(30)); err != nil {
		t.Fatal(err)
	}
	b.work.take()
	limiter.release()
	b.runPass("m1")
	if got := fmt.Sprint(b.work.take()); got != "[m1 m2]" {
		t.Errorf("work for %s, want [m1 m2]", got)
	}

	b.Forget(key("m2"))
	limiter.acquire(key("x"), nil)
	limiter.acquire(key("m2"), b.Controller.work.ring) // as a pass does that Forget overtakes
	limiter.acquire(key("m3"), b.Controller.work.ring)
	limiter.release()
	b.runPass("m2")
	if got := fmt.Sprint(b.work.take()); got != "[m2 m3]" {
		t.Errorf("work for %s, want [m2 m3]", got)
	}
}

// M-38.
func TestSlowEvictionsLetOthersHaveTheWorker(t *testing.T) {
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

func TestForceEndsADrainInTheMiddle(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")), on("m1", aPod("a/web-3")))
	b.drain("m1")
	b.onEvict = func(pod string) {
		if pod == "web-2" {
			forced := request("m1")
			forced.Force = true
			b.expectOutcome(b.Drain(context.Background(), forced), true, v1beta1.ReasonSkipped, "The annotation machinist.dev/force-delete is set.")
		}
	}
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	if next := b.runPass("m1"); next != 0 {
		t.Errorf("a forced drain wants to come back after %s", next)
	}
	b.expectEvictions()
	volumes := volumesRequest("m1", noon)
	volumes.Force = true
	b.expectOutcome(b.VolumesDetached(context.Background(), volumes), true, v1beta1.ReasonSkipped, "The annotation machinist.dev/force-delete is set.")
}

func TestSkippedDrains(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	skip := request("m1")
	skip.Skip = true
	first := b.Drain(context.Background(), skip)
	b.expectOutcome(first, true, v1beta1.ReasonSkipped, "The annotation machinist.dev/skip-drain is set.")
	b.pass(time.Minute)
	if again := b.Drain(context.Background(), skip); !again.LastPodGone.Equal(first.LastPodGone) {
		t.Errorf("the end of the drain moves from %s to %s", first.LastPodGone, again.LastPodGone)
	}
	none := request("m2")
	none.Node = ""
	b.expectOutcome(b.Drain(context.Background(), none), true, v1beta1.ReasonSkipped, "There is no Node.")
	if b.reads != 0 {
		t.Errorf("%d reads for nothing", b.reads)
	}
}

// TestPodsOfAnotherNodeOfTheNameAreSafe protects a Node that took over the name of the one to be drained.
func TestPodsOfAnotherNodeOfTheNameAreSafe(t *testing.T) {
	for name, node := range map[string]*corev1.Node{
		"another": {ObjectMeta: metav1.ObjectMeta{Name: "m1", UID: "another"}},
		"none":    aNode("m2"),
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, node, on("m1", aPod("a/web")))
			b.drain("m1")
			b.runPass("m1")
			b.expectEvictions()
			b.expectOutcome(b.drain("m1"), true, v1beta1.ReasonSkipped, "The Node is gone.")
		})
	}
}

func TestNothingIsDoneForAForgottenMachine(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")))
	b.drain("m1")
	b.onEvict = func(string) { b.Forget(key("m1")) }
	b.runPass("m1")
	b.expectEvictions("web-1")
	b.runPass("m1")
	b.expectEvictions()
	if n := len(b.memory.machines); n != 0 {
		t.Errorf("%d machines are remembered", n)
	}
}

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

func TestAChangedRequestIsLookedAtAgain(t *testing.T) {
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
		{func() { wanted.NodeReachable = false }, true},
		{func() {}, false},
	} {
		test.change()
		b.Drain(context.Background(), wanted)
		if again := b.work.take() != nil; again != test.again {
			t.Errorf("%d: looked at again: %t, want %t", i, again, test.again)
		}
	}
}

func TestMetricsSurviveASecondController(t *testing.T) {
	registry := prometheus.NewRegistry()
	first, second := newMetrics(), newMetrics()
	for _, m := range []*metrics{&first, &second} {
		if err := m.register(registry); err != nil {
			t.Fatal(err)
		}
		m.count(blocked)
	}
	const want = `
		# HELP machinist_evictions_total Attempts to evict a pod, or to delete it close to the deadline of a drain, by their result.
		# TYPE machinist_evictions_total counter
		machinist_evictions_total{result="blocked"} 2
		machinist_evictions_total{result="deleted"} 0
		machinist_evictions_total{result="error"} 0
		machinist_evictions_total{result="evicted"} 0
		machinist_evictions_total{result="gone"} 0
		machinist_evictions_total{result="throttled"} 0
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestALaterDrainOfAMachineIsAnother(t *testing.T) {
	b := newBench(t, aNode("m1"))
	b.expectOutcome(b.drain("m1"), true, v1beta1.ReasonDrained, "No pod is left to evict.")
	if err := b.target.Create(context.Background(), on("m1", aPod("a/web"))); err != nil {
		t.Fatal(err)
	}
	b.expectOutcome(b.drain("m1"), true, v1beta1.ReasonDrained, "No pod is left to evict.")
	later := request("m1")
	later.Start, later.Deadline = at(time.Hour), at(3*time.Hour)
	b.pass(time.Hour)
	b.expectOutcome(b.Drain(context.Background(), later), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
}

func TestAnOutageIsReportedAndSurvived(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web-1")), on("m1", aPod("a/web-2")))
	b.away = errors.New("connection refused")
	const report = `list the pods of node "m1": connection refused`
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDrainError, report)
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.away = nil
	b.onEvict = func(string) { b.away = errors.New("connection refused") }
	if _, err := b.Reconcile(context.Background(), reconcile.Request{NamespacedName: key("m1")}); err == nil {
		t.Error("the pass did not fail")
	}
	b.expectEvictions("web-1") // and not the next one
	b.away, b.onEvict = nil, nil
	b.pass(time.Minute)
	b.runPass("m1")
	b.expectEvictions("web-1", "web-2")
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
}

// TestThereIsAlwaysAReason protects the machine's conditions, which the API server refuses without one: also where a worker
// is busy with the machine when it is asked for.
func TestThereIsAlwaysAReason(t *testing.T) {
	b := newBench(t, aNode("m1"))
	r, _ := b.memory.admitVolumes(volumesRequest("m1", noon))
	r.busy.Lock()
	b.expectOutcome(b.drain("m1"), false, v1beta1.ReasonDraining, "Evicting the pods of node m1.")
	r.volumes = nil
	b.expectOutcome(b.VolumesDetached(context.Background(), volumesRequest("m1", noon)), false,
		v1beta1.ReasonWaitingForVolumeDetach, "Finding out what is attached to node m1.")
	if next := b.runPass("m1"); next != firstLook {
		t.Errorf("a worker that finds another one there comes back after %s", next)
	}
}

func TestAPodThatHasGoneMeanwhileIsNoFailure(t *testing.T) {
	b := newBench(t, aNode("m1"), on("m1", aPod("a/web")))
	b.refuse["web"] = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "web")
	b.drain("m1")
	b.runPass("m1")
	if o := b.drain("m1"); len(o.Blocked) != 0 {
		t.Errorf("got blockers %+v", o.Blocked)
	}
}

func TestDaemonSetsAreAskedForOnceAMinute(t *testing.T) {
	agents := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"}}
	agents.Namespace, agents.Name, agents.UID = "a", "agents", "agents"
	b := newBench(t, agents, aNode("m1"),
		on("m1", aPod("a/agent-1", ofDaemonSet("agents"))), on("m2", aPod("a/agent-2", ofDaemonSet("agents"))),
		on("m3", aPod("a/old-3", ofDaemonSet("gone"))), on("m4", aPod("a/agent-4", ownedBy("other/v1", "DaemonSet", "theirs"))))
	reads := func(machine string) int {
		b.reads = 0
		if !b.drain(machine).Done {
			t.Errorf("%s is not done", machine)
		}
		return b.reads
	}
	for i, test := range []struct {
		machine string
		after   time.Duration
		want    int
	}{{"m1", 0, 2}, {"m2", 59 * time.Second, 1}, {"m2", time.Second, 2}, {"m4", 0, 1}} {
		b.pass(test.after)
		b.Forget(key(test.machine))
		if got := reads(test.machine); got != test.want {
			t.Errorf("%d: %d reads for %s, want %d", i, got, test.machine, test.want)
		}
	}
	if b.drain("m3").Done {
		t.Error("the pod of a DaemonSet that is gone is not evicted")
	}
}

func volumesRequest(machine string, drained time.Time) VolumesRequest {
	return VolumesRequest{
		Machine: key(machine), UID: types.UID(machine + "-uid"), Node: machine, NodeUID: types.UID(machine + "-node"),
		Drained: drained, Timeout: 5 * time.Minute,
	}
}

// M-40.
func TestVolumesAreWaitedFor(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "buffer"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "buffer"}}
	volume := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "buffer"}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
		CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: "buffer"},
	}}}
	node := aNode("m1")
	node.Status.VolumesAttached = []corev1.AttachedVolume{{Name: "kubernetes.io/csi/d^buffer"}, {Name: "kubernetes.io/csi/d^db"}}
	db := anAttachment("csi-db", "m1", "db")
	b := newBench(t, node, claim, volume, db, anAttachment("csi-buffer", "m1", "buffer"), anAttachment("csi-other", "m2", "other"),
		on("m1", aPod("a/agent", ownedBy("other/v1", "DaemonSet", "agents"), withClaim("buffer"), withClaim("missing"))))
	wanted := volumesRequest("m1", noon)
	look := func() Outcome { return b.VolumesDetached(context.Background(), wanted) }

	b.expectOutcome(look(), false, v1beta1.ReasonWaitingForVolumeDetach, "Still attached to node m1: buffer; db.")
	if got := fmt.Sprint(b.work.take()); got != "[m1]" {
		t.Fatalf("work for %s, want [m1]", got)
	}
	for _, want := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 5 * time.Second} {
		next := b.runPass("m1")
		if next != want {
			t.Errorf("the next look is after %s, want %s", next, want)
		}
		b.pass(next)
	}
	b.expectOutcome(look(), false, v1beta1.ReasonWaitingForVolumeDetach, "Still attached to node m1: db.")
	b.wakes.take()

	if err := b.target.Delete(context.Background(), db, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.runPass("m1") // the Node reports it still
	b.expectOutcome(look(), false, v1beta1.ReasonWaitingForVolumeDetach, "Still attached to node m1: db.")
	node.Status.VolumesAttached = node.Status.VolumesAttached[:1]
	if err := b.target.Status().Update(context.Background(), node); err != nil {
		t.Fatal(err)
	}
	b.pass(time.Second)
	b.runPass("m1")
	b.expectOutcome(look(), true, v1beta1.ReasonVolumesDetached, "No volume that matters is attached.")
	if got := fmt.Sprint(b.wakes.take()); got != "[m1]" {
		t.Errorf("wakes of %s, want [m1]", got)
	}
}

// M-40.
func TestVolumesAreNotWaitedForWithoutEnd(t *testing.T) {
	b := newBench(t, aNode("m1"), anAttachment("csi-db", "m1", "db"))
	wanted := volumesRequest("m1", noon)
	b.VolumesDetached(context.Background(), wanted)
	b.pass(5*time.Minute - time.Second)
	if next := b.runPass("m1"); next != time.Second {
		t.Errorf("the last look is after %s", next)
	}
	b.pass(time.Second)
	b.runPass("m1")
	b.expectOutcome(b.VolumesDetached(context.Background(), wanted), true, v1beta1.ReasonVolumeDetachTimeout, "Still attached after 5m0s: db.")
}

func TestVolumesThatAreNotToBeToldAreNotWaitedForWithoutEnd(t *testing.T) {
	b := newBench(t, aNode("m1"))
	b.away = apierrors.NewForbidden(schema.GroupResource{Resource: "volumeattachments"}, "", errors.New("no"))
	wanted := volumesRequest("m1", noon)
	if o := b.VolumesDetached(context.Background(), wanted); o.Done || o.Reason != v1beta1.ReasonDrainError {
		t.Errorf("got %+v", o)
	}
	b.pass(5 * time.Minute)
	b.runPass("m1")
	if o := b.VolumesDetached(context.Background(), wanted); !o.Done || o.Reason != v1beta1.ReasonVolumeDetachTimeout {
		t.Errorf("got %+v", o)
	}
}

// TestManyAttachmentsAreListedSparingly protects the API server of a large cluster from a list for each machine.
func TestManyAttachmentsAreListedSparingly(t *testing.T) {
	b := newBench(t)
	lists := 0
	reader := &pagedReader{items: 1200, page: func() { lists++; b.pass(time.Second) }}
	a := attachments{target: reader, clock: b.clock}
	ask := func(node string, since time.Time) (int, time.Duration) {
		list, wait, err := a.on(context.Background(), node, since)
		if err != nil {
			t.Fatal(err)
		}
		return len(list), wait
	}
	if n, wait := ask("node-1", noon); n != 12 || wait != 0 || lists != 3 {
		t.Errorf("got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	if n, wait := ask("node-2", noon); n != 12 || wait != 0 || lists != 3 {
		t.Errorf("another node: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	if n, wait := ask("node-1", at(1)); n != 0 || wait != 15*time.Second || lists != 3 {
		t.Errorf("too early: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
	b.pass(15 * time.Second)
	if n, wait := ask("node-1", at(1)); n != 12 || wait != 0 || lists != 6 {
		t.Errorf("later: got %d attachments, wait %s, after %d pages", n, wait, lists)
	}
}

// pagedReader lists VolumeAttachments to 100 nodes, 500 at a time.
type pagedReader struct {
	client.Reader
	items int
	page  func()
}

func (r *pagedReader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	r.page()
	var o client.ListOptions
	o.ApplyOptions(opts)
	var from int
	if o.Continue != "" {
		if _, err := fmt.Sscan(o.Continue, &from); err != nil {
			return err
		}
	}
	to := min(from+int(o.Limit), r.items)
	return fillAttachments(list, from, to, r.items)
}

// TestVolumesInALargeClusterWaitForTheNextList protects that a machine neither goes on with an old list nor waits for a
// new one beyond its timeout.
func TestVolumesInALargeClusterWaitForTheNextList(t *testing.T) {
	b := newBench(t)
	listed := 0
	b.attachments.target = &pagedReader{items: 1200, page: func() { listed++; b.pass(30 * time.Second) }}
	if o := b.VolumesDetached(context.Background(), volumesRequest("m0", noon)); !o.Done {
		t.Fatalf("no volume is attached to m0: %+v", o)
	}
	late := volumesRequest("m1", at(2*time.Minute)) // newer than the list, which took 90 s
	b.clock.SetTime(late.Drained)
	b.expectOutcome(b.VolumesDetached(context.Background(), late), false, v1beta1.ReasonWaitingForVolumeDetach, "Finding out what is attached to node m1.")
	if next := b.runPass("m1"); next != 5*time.Minute {
		t.Errorf("the next look is after %s, want 5m0s, when its timeout has passed", next)
	}
	if listed != 3 {
		t.Errorf("listed %d pages, want 3", listed)
	}
	b.pass(5*time.Minute - 1)
	attached := volumesRequest("node-1", at(2*time.Minute))
	b.VolumesDetached(context.Background(), attached)
	b.pass(1)
	b.runPass("node-1")
	if o := b.VolumesDetached(context.Background(), attached); !o.Done || o.Reason != v1beta1.ReasonVolumeDetachTimeout {
		t.Errorf("got %+v", o)
	}
}
