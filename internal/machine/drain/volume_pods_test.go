package drain

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

var oneAtATime = &v1beta1.MachineDrain{PodsWithVolumes: v1beta1.VolumePodsOneAtATime}

// Rule: volume-pods-one-at-a-time.
func TestPlanEvictsOnePodWithVolumesAtATime(t *testing.T) {
	db := func(name string, options ...podOption) corev1.Pod {
		return aPod("ns/"+name, append(options, withClaim(name))...)
	}
	attached := func(since time.Duration) []UnusedVolume { return []UnusedVolume{{"pv-0", at(since)}} }
	for _, tc := range []struct {
		name string
		in   Input
		now  time.Duration // since the start of a drain of two hours
		want []string
		next time.Duration
		slow bool // the drain names the volume
	}{
		{"the first of two", Input{Pods: pods(db("db-1"), db("db-2"), aPod("ns/web"))}, 0,
			[]string{"db-1 evict", "db-2 hold", "web evict"}, time.Second, false},
		{"one is terminating", Input{Pods: pods(db("db-1", terminating(noon, 600)), db("db-2"), aPod("ns/web"))}, 0,
			[]string{"db-1 await", "db-2 hold", "web evict"}, time.Second, false},
		{"a volume is still attached", Input{Pods: pods(db("db-2"), aPod("ns/web")), UnusedVolumes: attached(0)}, 0,
			[]string{"db-2 hold", "web evict"}, time.Second, false},
		{"a volume is attached for a minute", Input{Pods: pods(db("db-2"), db("db-3")), UnusedVolumes: attached(0)}, time.Minute,
			[]string{"db-2 hold", "db-3 hold"}, time.Second, true},
		{"a volume is attached for longer than the timeout", Input{Pods: pods(db("db-2")), UnusedVolumes: attached(0)},
			5 * time.Minute, []string{"db-2 evict"}, time.Second, false},
		{"the volumes are not known yet", Input{Pods: pods(db("db-2")), VolumesUnknown: true}, 0, []string{"db-2 hold"},
			time.Second, false},
		{"the volumes cannot be read", Input{Pods: pods(db("db-2"), aPod("ns/web")), VolumesDenied: "forbidden"}, 0,
			[]string{"db-2 hold", "web evict"}, time.Second, false},
		{"the volumes cannot be read near the deadline", Input{Pods: pods(db("db-2")), VolumesDenied: "forbidden"},
			2*time.Hour - 30*time.Second, []string{"db-2 delete"}, time.Second, false},
		{"the first is blocked by its budget", Input{Pods: pods(db("db-1"), db("db-2")),
			Attempts: map[types.UID]Attempt{"db-1": {Failures: 1, NotBefore: at(time.Minute), Explanation: "no"}}}, 0,
			[]string{"db-1 hold", "db-2 evict"}, time.Second, false},
		{"the API server did not answer", Input{Pods: pods(db("db-1"), db("db-2")), Attempts: map[types.UID]Attempt{
			"db-1": {Failures: 1, NotBefore: at(time.Minute), UnansweredAction: ActionEvict, Explanation: "no"}}}, 0,
			[]string{"db-1 hold", "db-2 hold"}, time.Second, false},
		{"near the deadline", Input{Pods: pods(db("db-1"), db("db-2"))}, 2*time.Hour - 30*time.Second,
			[]string{"db-1 delete", "db-2 delete"}, time.Second, false},
		{"the volume of a pod that ended is not the volume of a pod that stays",
			Input{Pods: pods(db("db-1", inPhase(corev1.PodSucceeded)), db("db-2", ofDaemonSet("x")), db("db-3"))}, 0,
			[]string{"db-1 ignore", "db-2 skip", "db-3 evict"}, time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			in := tc.in
			in.Now, in.Start, in.Deadline, in.NodeReachable, in.Policy = at(tc.now), noon, at(2*time.Hour), true, oneAtATime
			in.VolumeDetachTimeout = 5 * time.Minute
			d := Plan(in)
			if diff := cmp.Diff(tc.want, planned(d)); diff != "" {
				t.Error(diff)
			}
			if d.NextCheck != tc.next {
				t.Errorf("the next check is after %s, want %s", d.NextCheck, tc.next)
			}
			named := 0
			for _, b := range blockers(d.Steps, in.Attempts) {
				if strings.Contains(b.Explanation, "volume pv-0 of an earlier pod is still attached") {
					named++
				}
			}
			if (named == 1) != tc.slow || named > 1 {
				t.Errorf("%d blockers name the volume, want it: %t", named, tc.slow)
			}
			in.Policy = nil
			for _, s := range Plan(in).Steps {
				if s.awaitsVolumes {
					t.Errorf("%s waits for volumes without the field", s.Pod)
				}
			}
		})
	}
}

// Rule: volume-pods-one-at-a-time.
func TestDrainWaitsForTheVolumeOfTheFormerPod(t *testing.T) {
	claim := func(name string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name},
			Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-" + name}}
	}
	first := anAttachment("va-1", "m1", "pv-db-1")
	b := newBench(t, aNode("m1"), claim("db-1"), claim("db-2"), claim("db-3"), claim("logs"), first,
		anAttachment("va-2", "m1", "pv-db-2"), anAttachment("va-logs", "m1", "pv-logs"), anAttachment("other", "m2", "pv-x"),
		on("m1", aPod("ns/db-1", withClaim("db-1"))), on("m1", aPod("ns/db-2", withClaim("db-2"))),
		on("m1", aPod("ns/db-3", withClaim("db-3"))), // This volume has no VolumeAttachment.
		on("m1", aPod("ns/web")), on("m1", aPod("ns/logs", ownedBy("other/v1", "DaemonSet", "logs"), withClaim("logs"))))
	wanted := request("m1")
	wanted.Policy, wanted.VolumeDetachTimeout = oneAtATime, 5*time.Minute
	b.Drain(wanted)
	b.runPass("m1")
	b.expectEvictions("db-1", "web")
	for range 3 {
		b.pass(2 * time.Second)
		b.runPass("m1")
		b.expectEvictions()
	}
	if err := b.target.Delete(context.Background(), first, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	b.pass(2 * time.Second)
	b.runPass("m1")
	b.expectEvictions("db-2")

	// The second volume stays attached. A new process waits for it too, at most for the timeout.
	b.restart(Options{})
	b.Drain(wanted)
	b.pass(time.Minute)
	b.runPass("m1")
	b.expectEvictions()
	b.pass(time.Minute)
	b.runPass("m1")
	b.expectOutcome(b.Drain(wanted), false, v1beta1.ReasonDraining, "Evicting the pods of node m1. Pods that block the drain: "+
		"ns/db-3 (pods with volumes are evicted one at a time: volume pv-db-2 of an earlier pod is still attached).")
	b.pass(4 * time.Minute)
	b.runPass("m1")
	b.expectEvictions("db-3")
	b.runPass("m1")
	if o := b.Drain(wanted); !o.IsDone || o.Reason != v1beta1.ReasonDrained {
		t.Errorf("got %+v", o)
	}
}

// Rule: drain-rules-decide.
func TestVolumesOfSkippedPodsAreNotAwaited(t *testing.T) {
	claim := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "cache"},
		Spec: corev1.PersistentVolumeClaimSpec{VolumeName: "pv-cache"}}
	b := newBench(t, aNode("m1"), claim, anAttachment("va", "m1", "pv-cache"),
		on("m1", aPod("ns/cache", labelled("app", "cache"), withClaim("cache"))))
	wanted := volumesRequest("m1", noon)
	wanted.Policy = &v1beta1.MachineDrain{Rules: []v1beta1.DrainRule{
		aRule("caches", v1beta1.DrainBehaviorSkip, 0, selecting("app", "cache"))}}
	b.VolumesDetached(context.Background(), wanted)
	b.runPass("m1")
	if o := b.VolumesDetached(context.Background(), wanted); !o.IsDone || o.Reason != v1beta1.ReasonVolumesDetached {
		t.Errorf("got %+v", o)
	}
}
