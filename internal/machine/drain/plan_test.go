package drain

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestPlanTreatsOnePod checks every rule on a node with one pod, or on the last one of a node with two.
//
// Rules: drain-order, silent-node-pods-gone, unready-node-pods-gone-later.
func TestPlanTreatsOnePod(t *testing.T) {
	const hour = time.Hour
	tests := []struct {
		name   string
		pods   []corev1.Pod
		now    time.Duration // since the start of a drain of two hours
		in     Input
		action Action
		grace  int64
		next   time.Duration
		left   bool
		forced bool

		unreachable bool
	}{
		{name: "a workload pod is evicted", pods: pods(aPod("a/web")), action: Evict, next: time.Second},
		{name: "a pod without owner and with local data too, the machine goes anyway",
			pods: pods(aPod("a/bare", withEmptyDir)), action: Evict, next: time.Second},
		{name: "a pending pod too", pods: pods(aPod("a/web", inPhase(corev1.PodPending))), action: Evict, next: time.Second},
		{name: "a mirror pod is skipped", pods: pods(aPod("a/static", mirror)), action: Skip},
		{name: "a critical mirror pod is skipped past its moment",
			pods: pods(aPod("a/static", mirror, withPriority(math.MaxInt32))),
			now:  2 * hour, action: Skip},
		{name: "a pod of a DaemonSet is skipped", pods: pods(aPod("a/agent", ofDaemonSet("agents"))), action: Skip},
		{name: "also while it is terminating", pods: pods(aPod("a/agent", ofDaemonSet("agents"), terminating(noon, 30))),
			action: Skip},
		{name: "a pod of another project's DaemonSet is skipped",
			pods: pods(aPod("a/agent", ownedBy("apps.kruise.io/v1alpha1", "DaemonSet", "agents"))), action: Skip},
		{name: "a pod of a DaemonSet that is gone is evicted", pods: pods(aPod("a/agent", ofDaemonSet("agents"))),
			in: Input{Orphaned: map[types.UID]bool{"agents": true}}, action: Evict, next: time.Second},
		{name: "a completed pod is ignored", pods: pods(aPod("a/job", inPhase(corev1.PodSucceeded))), action: Ignore},
		{name: "a failed pod is ignored", pods: pods(aPod("a/job", inPhase(corev1.PodFailed))), action: Ignore},
		{name: "a completed pod held by a finalizer is ignored",
			pods: pods(aPod("a/job", inPhase(corev1.PodFailed), terminating(noon, 30))), action: Ignore},
		{name: "a completed pod is ignored past the deadline", now: 3 * hour,
			pods:   pods(aPod("a/job", inPhase(corev1.PodFailed))),
			action: Ignore},

		{name: "a terminating pod is waited for", pods: pods(aPod("a/web", terminating(noon, 30))), action: Await,
			next: time.Second},
		{name: "at longer intervals", in: Input{RecheckAfter: 2 * time.Second},
			pods:   pods(aPod("a/web", terminating(noon, 30))),
			action: Await, next: 4 * time.Second},
		{name: "up to five seconds", in: Input{RecheckAfter: 4 * time.Second},
			pods:   pods(aPod("a/web", terminating(noon, 30))),
			action: Await, next: 5 * time.Second},
		{name: "an eviction makes the interval short again", in: Input{RecheckAfter: 5 * time.Second},
			pods:   pods(aPod("a/web")),
			action: Evict, next: time.Second},
		{name: "a terminating pod on an unreachable node counts as gone", unreachable: true,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: Ignore, left: true},
		{name: "on a node that is not Ready a terminating pod is waited for", in: Input{NotReadySince: at(-hour)},
			now:  30*time.Second + 5*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: Await, next: time.Second},
		{name: "until five minutes after its grace", in: Input{NotReadySince: at(-hour)}, now: 30*time.Second + 5*time.Minute,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: Ignore, left: true},
		{name: "five minutes of which the node was not Ready", in: Input{NotReadySince: at(10 * time.Minute)},
			now:  15*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: Await, next: time.Second},
		{name: "and which the drain lasted, whatever clocks said before", in: Input{NotReadySince: at(-hour)},
			now:  5*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(at(-hour), 30))), action: Await, next: time.Second},
		{name: "on such a node another pod keeps its budget", in: Input{NotReadySince: at(-hour)}, now: hour,
			pods: pods(aPod("a/web")), action: Evict, next: time.Second},
		{name: "critical pods do not wait for a pod that cannot end", in: Input{NotReadySince: at(-hour)}, now: hour,
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(math.MaxInt32))), action: Evict,
			next: time.Second},
		{name: "another pod on an unreachable node is evicted", unreachable: true,
			pods: pods(aPod("a/web")), action: Evict, next: time.Second},
		{name: "a pod that is terminating after the deadline is waited for a little longer", now: 2*hour + 9*time.Second,
			pods: pods(aPod("a/web", terminating(at(hour), 30))), action: Await, next: time.Second, forced: true},
		{name: "and then no longer", now: 2*hour + 10*time.Second, pods: pods(aPod("a/web", terminating(at(hour), 30))),
			action: Ignore, left: true},
		{name: "also when its grace begins after the deadline", now: 3*hour + 10*time.Second,
			pods: pods(aPod("a/web", terminating(at(3*hour), 1))), action: Await, next: time.Second, forced: true},

		{name: "a critical pod waits for workload pods",
			pods:   pods(aPod("a/web"), aPod("a/dns", withPriority(2_000_000_000))),
			action: Block, next: time.Second},
		{name: "by the name of its class too",
			pods:   pods(aPod("a/web"), aPod("a/dns", withPriorityClass("system-cluster-critical"))),
			action: Block, next: time.Second},
		{name: "and of the other class", pods: pods(aPod("a/web"), aPod("a/dns", withPriorityClass("system-node-critical"))),
			action: Block, next: time.Second},
		{name: "a critical pod waits for the last workload pod to leave",
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(2_000_000_000))), action: Block,
			next: time.Second},
		{name: "not for one that is skipped", pods: pods(aPod("a/agent", ofDaemonSet("agents")),
			aPod("a/dns", withPriority(math.MaxInt32))),
			action: Evict, next: time.Second},
		{name: "not for one that counts as gone", unreachable: true,
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(math.MaxInt32))), action: Evict,
			next: time.Second},
		{name: "a high priority below the system's is a workload",
			pods:   pods(aPod("a/web"), aPod("a/zoo", withPriority(1_999_999_999))),
			action: Evict, next: time.Second},
		{name: "a critical pod is deleted at its moment though a workload pod is there", now: 2*hour - 40*time.Second,
			pods: pods(aPod("a/web", terminating(at(2*hour-50*time.Second), 30)), aPod("a/dns", withPriority(math.MaxInt32),
				withGrace(60))),
			action: Delete, grace: 40, next: time.Second, forced: true},

		{name: "a refused pod is held", in: refusedUntil("web", at(7*time.Second)), pods: pods(aPod("a/web")),
			action: Block, next: 7 * time.Second},
		{name: "and tried again", in: refusedUntil("web", noon), pods: pods(aPod("a/web")), action: Evict, next: time.Second},
		{name: "a refused pod that is held for long is checked every minute", in: refusedUntil("web", at(hour)),
			pods: pods(aPod("a/web")), action: Block, next: time.Minute},
		{name: "a held pod is checked when its moment comes", now: 2*hour - 31*time.Second,
			in:   refusedUntil("web", at(2*hour)),
			pods: pods(aPod("a/web")), action: Block, next: time.Second},

		{name: "just before its moment a pod is evicted", now: 2*hour - 30*time.Second - 1, pods: pods(aPod("a/web")),
			action: Evict, next: 1},
		{name: "from its moment it is deleted", now: 2*hour - 30*time.Second, pods: pods(aPod("a/web")),
			action: Delete, grace: 30, next: time.Second, forced: true},
		{name: "with what remains of its grace", now: 2*hour - 12500*time.Millisecond, pods: pods(aPod("a/web")),
			action: Delete, grace: 12, next: time.Second, forced: true},
		{name: "at the deadline with a second", now: 2 * hour, pods: pods(aPod("a/web")),
			action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "long past the deadline with a second", now: 200 * hour, pods: pods(aPod("a/web")),
			action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "a rejection does not hold past the moment", now: 2*hour - 30*time.Second, in: refusedUntil("web", at(3*hour)),
			pods: pods(aPod("a/web")), action: Delete, grace: 30, next: time.Second, forced: true},
		{name: "a long grace does not begin before half time", now: hour - 1, pods: pods(aPod("a/web", withGrace(7200))),
			action: Evict, next: 1},
		{name: "and is cut", now: hour, pods: pods(aPod("a/web", withGrace(7200))),
			action: Delete, grace: 3600, next: time.Second, forced: true},
		{name: "no timeout deletes at once, with a second", in: Input{Deadline: noon}, pods: pods(aPod("a/web")),
			action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "a deadline before the start too", in: Input{Deadline: at(-hour)}, pods: pods(aPod("a/web")),
			action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "a failed deletion is tried again later", now: 2 * hour, in: undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: Block, next: 4 * time.Second, forced: true},
		{name: "then at once", now: 2*hour + 4*time.Second, in: undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "before the deadline it is not given up", now: hour + 10*time.Minute, in: undeletable(at(hour), noon),
			pods: pods(aPod("a/web", withGrace(7200))), action: Delete, grace: 3000, next: time.Second, forced: true},
		{name: "a minute later it is", now: 2*hour + time.Minute, in: undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: Ignore, left: true},

		{name: "a terminating pod whose grace lasts beyond the deadline keeps it until its moment", now: hour - time.Second,
			pods: pods(aPod("a/web", terminating(noon, 7201))), action: Await, next: time.Second},
		{name: "then its grace is cut", now: hour, pods: pods(aPod("a/web", terminating(noon, 7201))),
			action: Delete, grace: 3600, next: time.Second, forced: true},
		{name: "once", now: hour + time.Second, pods: pods(aPod("a/web", terminating(noon, 3600))), action: Await,
			next: time.Second},
		{name: "one without a grace period is not deleted again, that would be without any", now: 2 * hour,
			pods: pods(aPod("a/web", terminating(at(3*hour), 0))), action: Await, next: time.Second, forced: true},
		{name: "nor one whose grace is as short", now: 2 * hour, pods: pods(aPod("a/web", terminating(at(2*hour), 1))),
			action: Await, next: time.Second, forced: true},
		{name: "one that cannot be deleted is given up in the end", now: 2*hour + time.Minute,
			in:   undeletable(at(2*hour), noon),
			pods: pods(aPod("a/web", terminating(noon, 99999))), action: Ignore, left: true},

		{name: "without a deadline nothing is deleted", now: 9999 * hour, in: Input{Deadline: time.Time{}, Start: at(1)},
			pods: pods(aPod("a/web")), action: Evict, next: time.Second},
		{name: "nor given up", now: 9999 * hour, in: Input{Deadline: time.Time{}, Start: at(1)},
			pods: pods(aPod("a/web", terminating(noon, 30))), action: Await, next: time.Second},
		{name: "no grace of its own becomes a second", pods: pods(aPod("a/web", withGrace(0))), action: Evict, grace: 1,
			next: time.Second},
		{name: "a negative grace is one of a second", now: 2*hour - time.Second, pods: pods(aPod("a/web", withGrace(-5))),
			action: Delete, grace: 1, next: time.Second, forced: true},
		{name: "a grace without end is cut", now: hour, pods: pods(aPod("a/web", withGrace(math.MaxInt64))),
			action: Delete, grace: 3600, next: time.Second, forced: true},
		{name: "a negative priority is a workload's", pods: pods(aPod("a/web", withPriority(math.MinInt32))),
			action: Evict, next: time.Second},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			in := test.in
			in.Pods, in.Now = test.pods, at(test.now)
			if in.Start.IsZero() {
				in.Start = noon
				if in.Deadline.IsZero() {
					in.Deadline = at(2 * hour)
				}
			}
			in.NodeReachable = !test.unreachable
			d := Plan(in)
			got := d.Steps[len(d.Steps)-1]
			if got.Action != test.action || got.Grace != test.grace || got.Left != test.left {
				t.Errorf("got %s with grace %d (left %t), want %s with %d (%t): %s",
					got.Action, got.Grace, got.Left, test.action, test.grace, test.left, got.Why)
			}
			if got.Why == "" {
				t.Error("the step has no reason")
			}
			if d.Next != test.next || d.Done != (test.next == 0) {
				t.Errorf("got next %s, done %t, want next %s", d.Next, d.Done, test.next)
			}
			if d.Forced != test.forced {
				t.Errorf("got forced %t, want %t", d.Forced, test.forced)
			}
		})
	}
}

func TestPlanIsDoneWithAnEmptyNode(t *testing.T) {
	if d := Plan(Input{Now: noon, Start: noon, Deadline: at(time.Hour), NodeReachable: true}); !d.Done || d.Next != 0 ||
		d.Blocked != nil {
		t.Errorf("got %+v", d)
	}
}

// Rule: drain-names-blockers.
func TestPlanNamesWhatHoldsUpTheDrain(t *testing.T) {
	in := Input{
		Now: at(2 * time.Minute), Start: noon, Deadline: at(2 * time.Hour), NodeReachable: true,
		Pods: pods(
			aPod("b/slow", terminating(at(time.Minute), 3600)),
			aPod("b/quick", terminating(at(time.Minute+1), 3600)),
			aPod("a/retried"), aPod("a/held"), aPod("a/new"),
			aPod("a/done", inPhase(corev1.PodSucceeded)),
		),
		Tries: map[types.UID]Try{
			"retried": {Failures: 1, NotBefore: noon, Why: "no"},
			"held": {Failures: 2, NotBefore: at(time.Hour), Why: "never", Refused: true, Budgets: []string{"pdb"},
				Never: true},
			"done": {Failures: 1, Why: "no"},
		},
	}
	want := []Blocker{
		{Pod: types.NamespacedName{Namespace: "a", Name: "held"}, Refused: true, Budgets: []string{"pdb"}, Never: true,
			Why: "never"},
		{Pod: types.NamespacedName{Namespace: "a", Name: "retried"}, Why: "no"},
		{Pod: types.NamespacedName{Namespace: "b", Name: "slow"}, Why: "terminating since 2026-08-01T12:01:00Z"},
	}
	if diff := cmp.Diff(want, Plan(in).Blocked); diff != "" {
		t.Error(diff)
	}
}

// TestPlanOfAMixedNode shows one plan for people to read.
func TestPlanOfAMixedNode(t *testing.T) {
	var b strings.Builder
	for _, now := range []time.Duration{time.Minute, 2*time.Hour - 20*time.Second} {
		d := Plan(Input{
			Now: at(now), Start: noon, Deadline: at(2 * time.Hour), NodeReachable: true,
			Orphaned: map[types.UID]bool{"old-agents": true},
			Tries: map[types.UID]Try{
				"db-0": {Failures: 3, NotBefore: at(time.Minute + 10*time.Second), Budgets: []string{"db"},
					Why: "The disruption budget db needs 2 healthy pods and has 2 currently"},
			},
			Pods: pods(
				aPod("shop/web-1"),
				aPod("shop/web-0", withGrace(10), withPriority(100)),
				aPod("shop/batch-7", inPhase(corev1.PodSucceeded)),
				aPod("shop/cart-3", terminating(noon, 300)),
				aPod("data/db-0", withGrace(600)),
				aPod("kube-system/coredns-x", withPriorityClass("system-cluster-critical"), withPriority(2_000_000_000)),
				aPod("kube-system/etcd-node", mirror, withPriority(2_000_001_000)),
				aPod("kube-system/proxy-q", ofDaemonSet("proxy"), withPriority(2_000_001_000)),
				aPod("kube-system/agent-r", ofDaemonSet("old-agents")),
			),
		})
		fmt.Fprintf(&b, "after %s: done %t, forced %t, check again after %s\n", now, d.Done, d.Forced, d.Next)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  ACTION\tPOD\tGRACE PERIOD\tREASON")
		for _, s := range d.Steps {
			grace := "its own"
			if s.Grace > 0 {
				grace = fmt.Sprint(s.Grace, " s")
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", s.Action, s.Pod, grace, s.Why)
		}
		w.Flush()
		for _, blocker := range d.Blocked {
			fmt.Fprintf(&b, "  in the way: %s\n", blocker)
		}
		b.WriteString("\n")
	}
	const file = "testdata/mixed_node.golden"
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Error(diff)
	}
}

func pods(all ...corev1.Pod) []corev1.Pod { return all }

func withEmptyDir(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "scratch",
		VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
}

func refusedUntil(pod types.UID, until time.Time) Input {
	return Input{Tries: map[types.UID]Try{pod: {Failures: 1, NotBefore: until, Budgets: []string{"pdb"}, Why: "refused"}}}
}

func undeletable(since, until time.Time) Input {
	return Input{Tries: map[types.UID]Try{"web": {Failures: 1, Deleting: since, NotBefore: until, Why: "denied"}}}
}
