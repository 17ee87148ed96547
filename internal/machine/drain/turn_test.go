package drain

import (
	"fmt"
	"math"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func toleratingAll(p *corev1.Pod) {
	p.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
}

func createdAt(t time.Time) podOption {
	return func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(t) }
}

// Rule: drain-order.
func TestPodsThatTolerateTheCordonAreEvictedLast(t *testing.T) {
	osd, dns := aPod("a/osd", toleratingAll, withPriority(math.MaxInt32)), aPod("a/dns", withPriority(math.MaxInt32))
	for _, tc := range []struct {
		name string
		pods []corev1.Pod
		want Action
	}{
		{"with a workload pod", pods(aPod("a/web"), osd), ActionBlock},
		{"with a critical pod", pods(dns, osd), ActionBlock},
		{"alone", pods(osd), ActionEvict},
		{"with a pod that stays", pods(aPod("a/agent", ofDaemonSet("agents")), osd), ActionEvict},
	} {
		d := Plan(Input{Pods: tc.pods, Now: noon, Start: noon, Deadline: at(time.Hour), NodeReachable: true})
		last := d.Steps[len(d.Steps)-1]
		if last.Pod.Name != "osd" || last.Action != tc.want {
			t.Errorf("%s: the last step is %s %s, want %s of osd", tc.name, last.Action, last.Pod.Name, tc.want)
		}
	}
}

func TestToleratesCordon(t *testing.T) {
	for _, tc := range []struct {
		toleration corev1.Toleration
		want       bool
	}{
		{corev1.Toleration{Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists}, true},
		{corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}, true},
		{corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Value: "x"}, false},
		{corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}, false},
		{corev1.Toleration{Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute}, false},
		{corev1.Toleration{}, false},
	} {
		pod := aPod("a/x", func(p *corev1.Pod) { p.Spec.Tolerations = []corev1.Toleration{tc.toleration} })
		if got := toleratesCordon(&pod); got != tc.want {
			t.Errorf("%+v tolerates the cordon: %t, want %t", tc.toleration, got, tc.want)
		}
	}
}

// Rule: drain-ends-as-a-whole.
func TestSuccessorsOnTheCordonedNodeAreNotEvicted(t *testing.T) {
	for _, tc := range []struct {
		name  string
		pod   corev1.Pod
		after time.Duration
		want  Action
	}{
		{"a pod that tolerates the cordon", aPod("a/osd", toleratingAll), 0, ActionSkip},
		{"a pod that its controller binds to the node", aPod("a/pinned"), schedulerLag, ActionSkip},
		{"a pod that a scheduler with a stale cache binds to the node", aPod("a/web"), schedulerLag - 1, ActionEvict},
	} {
		d := Plan(Input{Pods: pods(tc.pod), Now: at(time.Minute), Start: noon, Deadline: at(time.Hour), NodeReachable: true,
			Successors: map[types.UID]time.Duration{tc.pod.UID: tc.after}})
		if got := d.Steps[0].Action; got != tc.want || d.IsDone != (tc.want == ActionSkip) {
			t.Errorf("%s: %s, done %t, want %s", tc.name, got, d.IsDone, tc.want)
		}
	}
}

// Rule: drain-ends-as-a-whole.
func TestPodsCreatedDuringTheDrainDoNotExtendIt(t *testing.T) {
	plan := func(now time.Time, pod corev1.Pod) Decision {
		return Plan(Input{Pods: pods(pod), Now: now, Start: noon, Deadline: at(time.Hour), NodeReachable: true})
	}
	end := at(time.Hour)
	for _, pod := range []corev1.Pod{aPod("a/new", createdAt(at(time.Minute))),
		aPod("a/new", createdAt(at(time.Minute)), terminating(end, 30))} {
		if d := plan(end.Add(-time.Second), pod); d.IsDone {
			t.Errorf("the drain does not wait for a pod that was created during the drain: %+v", d.Steps)
		}
		if d := plan(end, pod); !d.IsDone {
			t.Errorf("a pod that was created during the drain extends it: %+v", d.Steps)
		}
	}
	if d := plan(end, aPod("a/old", createdAt(noon))); d.IsDone {
		t.Error("a pod that existed before the drain gets no grace period after the deadline")
	}
}

// Each call of the function that pinnedPods returns creates a pod on the node. The pod template of its owner contains
// the name of this node.
func (b *bench) pinnedPods(owner string, change ...podOption) func() {
	serial := 0
	return func() {
		serial++
		pod := aPod(fmt.Sprintf("a/%s-%d", owner, serial), append(change, ownedBy("apps/v1", "ReplicaSet", owner))...)
		pod.CreationTimestamp = metav1.NewTime(b.clock.Now())
		if err := b.target.Create(b.Context(), on("m1", pod)); err != nil {
			b.Fatal(err)
		}
	}
}

// Rule: drain-ends-as-a-whole.
func TestReturningPodIsNotEvictedForever(t *testing.T) {
	for name, tc := range map[string]struct {
		change []podOption
		limit  int
	}{
		"tolerates the cordon": {[]podOption{toleratingAll}, 1},
		"bound to the node":    {nil, int(schedulerLag/time.Second) + 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, aNode("m1"))
			create := b.pinnedPods("osd", tc.change...)
			create()
			b.onEvict = func(string) { create() }
			var evicted int
			for range 60 {
				outcome := b.drain("m1")
				if outcome.IsDone {
					if evicted = len(b.evictions); evicted == 0 || evicted > tc.limit {
						t.Errorf("%d evictions, want 1 to %d", evicted, tc.limit)
					}
					return
				}
				wait := b.runPass("m1")
				b.pass(max(wait, time.Second))
			}
			t.Errorf("the drain does not end; evictions: %v", b.evictions)
		})
	}
}
