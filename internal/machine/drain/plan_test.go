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

// TestPlanOfOnePod checks the step for one pod. In some cases, the node has a second pod, which is evicted first.
//
// Rules: drain-order, silent-node-pods-gone, unready-node-pods-gone-later.
func TestPlanOfOnePod(t *testing.T) {
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
		{name: "a workload pod is evicted", pods: pods(aPod("a/web")), action: ActionEvict, next: time.Second},
		{name: "a pod without an owner and with local data is evicted, because the machine is deleted anyway",
			pods: pods(aPod("a/bare", withEmptyDir)), action: ActionEvict, next: time.Second},
		{name: "a pending pod is evicted", pods: pods(aPod("a/web", inPhase(corev1.PodPending))), action: ActionEvict,
			next: time.Second},
		{name: "a mirror pod is skipped", pods: pods(aPod("a/static", mirror)), action: ActionSkip},
		{name: "a critical mirror pod is skipped after the deadline",
			pods: pods(aPod("a/static", mirror, withPriority(math.MaxInt32))),
			now:  2 * hour, action: ActionSkip},
		{name: "a pod of a DaemonSet is skipped", pods: pods(aPod("a/agent", ofDaemonSet("agents"))), action: ActionSkip},
		{name: "a terminating pod of a DaemonSet is skipped",
			pods:   pods(aPod("a/agent", ofDaemonSet("agents"), terminating(noon, 30))),
			action: ActionSkip},
		{name: "a pod of another project's DaemonSet is skipped",
			pods: pods(aPod("a/agent", ownedBy("apps.kruise.io/v1alpha1", "DaemonSet", "agents"))), action: ActionSkip},
		{name: "a pod of a deleted DaemonSet is evicted", pods: pods(aPod("a/agent", ofDaemonSet("agents"))),
			in: Input{OrphanedDaemonSets: map[types.UID]bool{"agents": true}}, action: ActionEvict, next: time.Second},
		{name: "a completed pod is ignored", pods: pods(aPod("a/job", inPhase(corev1.PodSucceeded))), action: ActionIgnore},
		{name: "a failed pod is ignored", pods: pods(aPod("a/job", inPhase(corev1.PodFailed))), action: ActionIgnore},
		{name: "a completed pod with a finalizer is ignored",
			pods: pods(aPod("a/job", inPhase(corev1.PodFailed), terminating(noon, 30))), action: ActionIgnore},
		{name: "a completed pod is ignored after the deadline", now: 3 * hour,
			pods:   pods(aPod("a/job", inPhase(corev1.PodFailed))),
			action: ActionIgnore},

		{name: "a terminating pod is waited for", pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionWait,
			next: time.Second},
		{name: "a terminating pod is checked at longer intervals", in: Input{RecheckAfter: 2 * time.Second},
			pods:   pods(aPod("a/web", terminating(noon, 30))),
			action: ActionWait, next: 4 * time.Second},
		{name: "a terminating pod is checked at least every five seconds", in: Input{RecheckAfter: 4 * time.Second},
			pods:   pods(aPod("a/web", terminating(noon, 30))),
			action: ActionWait, next: 5 * time.Second},
		{name: "an eviction makes the interval short again", in: Input{RecheckAfter: 5 * time.Second},
			pods:   pods(aPod("a/web")),
			action: ActionEvict, next: time.Second},
		{name: "a terminating pod on an unreachable node counts as gone", unreachable: true,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionIgnore, left: true},
		{name: "a terminating pod on a node that is not Ready is waited for", in: Input{NotReadySince: at(-hour)},
			now:  30*time.Second + 5*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionWait, next: time.Second},
		{name: "a terminating pod on a node that is not Ready counts as gone five minutes after its grace period",
			in: Input{NotReadySince: at(-hour)}, now: 30*time.Second + 5*time.Minute,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionIgnore, left: true},
		{name: "the five minutes begin when the node becomes not Ready", in: Input{NotReadySince: at(10 * time.Minute)},
			now:  15*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionWait, next: time.Second},
		{name: "the five minutes begin with the drain", in: Input{NotReadySince: at(-hour)},
			now:  5*time.Minute - 1,
			pods: pods(aPod("a/web", terminating(at(-hour), 30))), action: ActionWait, next: time.Second},
		{name: "the budget of another pod is respected on a node that is not Ready", in: Input{NotReadySince: at(-hour)},
			now:  hour,
			pods: pods(aPod("a/web")), action: ActionEvict, next: time.Second},
		{name: "a critical pod does not wait for a pod that counts as gone on a node that is not Ready",
			in: Input{NotReadySince: at(-hour)}, now: hour,
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(math.MaxInt32))), action: ActionEvict,
			next: time.Second},
		{name: "a pod that is not terminating is evicted from an unreachable node", unreachable: true,
			pods: pods(aPod("a/web")), action: ActionEvict, next: time.Second},
		{name: "a terminating pod is waited for until shortly after the deadline", now: 2*hour + 9*time.Second,
			pods: pods(aPod("a/web", terminating(at(hour), 30))), action: ActionWait, next: time.Second, forced: true},
		{name: "a terminating pod is left behind ten seconds after the deadline", now: 2*hour + 10*time.Second,
			pods:   pods(aPod("a/web", terminating(at(hour), 30))),
			action: ActionIgnore, left: true},
		{name: "a pod that is terminating since after the deadline is waited for", now: 3*hour + 10*time.Second,
			pods: pods(aPod("a/web", terminating(at(3*hour), 1))), action: ActionWait, next: time.Second, forced: true},

		{name: "a critical pod waits for workload pods",
			pods:   pods(aPod("a/web"), aPod("a/dns", withPriority(2_000_000_000))),
			action: ActionBlock, next: time.Second},
		{name: "a pod with the class system-cluster-critical waits for workload pods",
			pods:   pods(aPod("a/web"), aPod("a/dns", withPriorityClass("system-cluster-critical"))),
			action: ActionBlock, next: time.Second},
		{name: "a pod with the class system-node-critical waits for workload pods",
			pods:   pods(aPod("a/web"), aPod("a/dns", withPriorityClass("system-node-critical"))),
			action: ActionBlock, next: time.Second},
		{name: "a critical pod waits until the last workload pod is gone",
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(2_000_000_000))), action: ActionBlock,
			next: time.Second},
		{name: "a critical pod does not wait for a skipped pod", pods: pods(aPod("a/agent", ofDaemonSet("agents")),
			aPod("a/dns", withPriority(math.MaxInt32))),
			action: ActionEvict, next: time.Second},
		{name: "a critical pod does not wait for a pod that counts as gone", unreachable: true,
			pods: pods(aPod("a/web", terminating(noon, 30)), aPod("a/dns", withPriority(math.MaxInt32))), action: ActionEvict,
			next: time.Second},
		{name: "a pod with a high priority below that of the system is a workload pod",
			pods:   pods(aPod("a/web"), aPod("a/zoo", withPriority(1_999_999_999))),
			action: ActionEvict, next: time.Second},
		{name: "a critical pod is deleted near the deadline although a workload pod is left", now: 2*hour - 40*time.Second,
			pods: pods(aPod("a/web", terminating(at(2*hour-50*time.Second), 30)), aPod("a/dns", withPriority(math.MaxInt32),
				withGrace(60))),
			action: ActionDelete, grace: 40, next: time.Second, forced: true},

		{name: "a refused pod is not tried again at once", in: refusedUntil("web", at(7*time.Second)),
			pods:   pods(aPod("a/web")),
			action: ActionBlock, next: 7 * time.Second},
		{name: "a refused pod is tried again when that is due", in: refusedUntil("web", noon), pods: pods(aPod("a/web")),
			action: ActionEvict, next: time.Second},
		{name: "a node with a refused pod is checked every minute", in: refusedUntil("web", at(hour)),
			pods: pods(aPod("a/web")), action: ActionBlock, next: time.Minute},
		{name: "a node with a refused pod is checked when the pod is to be deleted", now: 2*hour - 31*time.Second,
			in:   refusedUntil("web", at(2*hour)),
			pods: pods(aPod("a/web")), action: ActionBlock, next: time.Second},

		{name: "a pod is evicted until its grace period before the deadline", now: 2*hour - 30*time.Second - 1,
			pods:   pods(aPod("a/web")),
			action: ActionEvict, next: 1},
		{name: "a pod is deleted from its grace period before the deadline", now: 2*hour - 30*time.Second,
			pods:   pods(aPod("a/web")),
			action: ActionDelete, grace: 30, next: time.Second, forced: true},
		{name: "a pod is deleted with what is left of its grace period", now: 2*hour - 12500*time.Millisecond,
			pods:   pods(aPod("a/web")),
			action: ActionDelete, grace: 12, next: time.Second, forced: true},
		{name: "a pod is deleted with one second at the deadline", now: 2 * hour, pods: pods(aPod("a/web")),
			action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "a pod is deleted with one second long after the deadline", now: 200 * hour, pods: pods(aPod("a/web")),
			action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "a refused pod is deleted near the deadline", now: 2*hour - 30*time.Second,
			in:   refusedUntil("web", at(3*hour)),
			pods: pods(aPod("a/web")), action: ActionDelete, grace: 30, next: time.Second, forced: true},
		{name: "a pod with a long grace period is evicted in the first half of the drain", now: hour - 1,
			pods:   pods(aPod("a/web", withGrace(7200))),
			action: ActionEvict, next: 1},
		{name: "a long grace period is shortened in the second half of the drain", now: hour,
			pods:   pods(aPod("a/web", withGrace(7200))),
			action: ActionDelete, grace: 3600, next: time.Second, forced: true},
		{name: "without time a pod is deleted at once with one second", in: Input{Deadline: noon}, pods: pods(aPod("a/web")),
			action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "with a deadline before the start a pod is deleted at once", in: Input{Deadline: at(-hour)},
			pods:   pods(aPod("a/web")),
			action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "a failed deletion is not tried again at once", now: 2 * hour,
			in:   undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: ActionBlock, next: 4 * time.Second, forced: true},
		{name: "a failed deletion is tried again when that is due", now: 2*hour + 4*time.Second,
			in:   undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "a pod that cannot be deleted is not left behind before the deadline", now: hour + 10*time.Minute,
			in:   undeletable(at(hour), noon),
			pods: pods(aPod("a/web", withGrace(7200))), action: ActionDelete, grace: 3000, next: time.Second, forced: true},
		{name: "a pod that cannot be deleted is left behind a minute after the deadline", now: 2*hour + time.Minute,
			in:   undeletable(at(2*hour), at(2*hour+4*time.Second)),
			pods: pods(aPod("a/web")), action: ActionIgnore, left: true},

		{name: "a terminating pod keeps a grace period beyond the deadline in the first half of the drain",
			now:  hour - time.Second,
			pods: pods(aPod("a/web", terminating(noon, 7201))), action: ActionWait, next: time.Second},
		{name: "the grace period of a terminating pod is shortened in the second half", now: hour,
			pods:   pods(aPod("a/web", terminating(noon, 7201))),
			action: ActionDelete, grace: 3600, next: time.Second, forced: true},
		{name: "the grace period of a terminating pod is shortened once", now: hour + time.Second,
			pods: pods(aPod("a/web", terminating(noon, 3600))), action: ActionWait,
			next: time.Second},
		{name: "a terminating pod without a grace period is not deleted again", now: 2 * hour,
			pods: pods(aPod("a/web", terminating(at(3*hour), 0))), action: ActionWait, next: time.Second, forced: true},
		{name: "a terminating pod with the shortest grace period is not deleted again", now: 2 * hour,
			pods:   pods(aPod("a/web", terminating(at(2*hour), 1))),
			action: ActionWait, next: time.Second, forced: true},
		{name: "a terminating pod that cannot be deleted again is left behind", now: 2*hour + time.Minute,
			in:   undeletable(at(2*hour), noon),
			pods: pods(aPod("a/web", terminating(noon, 99999))), action: ActionIgnore, left: true},

		{name: "without a deadline no pod is deleted", now: 9999 * hour, in: Input{Deadline: time.Time{}, Start: at(1)},
			pods: pods(aPod("a/web")), action: ActionEvict, next: time.Second},
		{name: "without a deadline no terminating pod is left behind", now: 9999 * hour,
			in:   Input{Deadline: time.Time{}, Start: at(1)},
			pods: pods(aPod("a/web", terminating(noon, 30))), action: ActionWait, next: time.Second},
		{name: "a grace period of zero becomes one second", pods: pods(aPod("a/web", withGrace(0))), action: ActionEvict, grace: 1,
			next: time.Second},
		{name: "a negative grace period becomes one second", now: 2*hour - time.Second,
			pods:   pods(aPod("a/web", withGrace(-5))),
			action: ActionDelete, grace: 1, next: time.Second, forced: true},
		{name: "an endless grace period is shortened", now: hour, pods: pods(aPod("a/web", withGrace(math.MaxInt64))),
			action: ActionDelete, grace: 3600, next: time.Second, forced: true},
		{name: "a pod with a negative priority is a workload pod", pods: pods(aPod("a/web", withPriority(math.MinInt32))),
			action: ActionEvict, next: time.Second},
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
			if got.Action != test.action || got.Grace != test.grace || got.IsAbandoned != test.left {
				t.Errorf("got %s with grace %d (left %t), want %s with %d (%t): %s",
					got.Action, got.Grace, got.IsAbandoned, test.action, test.grace, test.left, got.Explanation)
			}
			if got.Explanation == "" {
				t.Error("the step has no reason")
			}
			if d.NextCheck != test.next || d.IsDone != (test.next == 0) {
				t.Errorf("got next %s, done %t, want next %s", d.NextCheck, d.IsDone, test.next)
			}
			if d.IsForced != test.forced {
				t.Errorf("got forced %t, want %t", d.IsForced, test.forced)
			}
		})
	}
}

func TestPlanOfAnEmptyNodeIsDone(t *testing.T) {
	if d := Plan(Input{Now: noon, Start: noon, Deadline: at(time.Hour), NodeReachable: true}); !d.IsDone ||
		d.NextCheck != 0 ||
		blockers(d.Steps, nil) != nil {
		t.Errorf("got %+v", d)
	}
}

// Rule: drain-names-blockers.
func TestPlanNamesPodsThatBlockTheDrain(t *testing.T) {
	in := Input{
		Now: at(2 * time.Minute), Start: noon, Deadline: at(2 * time.Hour), NodeReachable: true,
		Pods: pods(
			aPod("b/slow", terminating(at(time.Minute), 3600)),
			aPod("b/quick", terminating(at(time.Minute+1), 3600)),
			aPod("a/retried"), aPod("a/held"), aPod("a/new"),
			aPod("a/done", inPhase(corev1.PodSucceeded)),
		),
		Attempts: map[types.UID]Attempt{
			"retried": {Failures: 1, NotBefore: noon, Explanation: "no"},
			"held": {Failures: 2, NotBefore: at(time.Hour), Explanation: "never", IsRefused: true, Budgets: []string{"pdb"},
				NeverAllowed: true},
			"done": {Failures: 1, Explanation: "no"},
		},
	}
	want := []Blocker{
		{types.NamespacedName{Namespace: "a", Name: "held"}, "held", "", in.Attempts["held"]},
		{types.NamespacedName{Namespace: "a", Name: "retried"}, "retried", "", in.Attempts["retried"]},
		{types.NamespacedName{Namespace: "b", Name: "slow"}, "slow", "", Attempt{Explanation: "terminating since 2026-08-01T12:01:00Z"}},
	}
	if diff := cmp.Diff(want, blockers(Plan(in).Steps, in.Attempts)); diff != "" {
		t.Error(diff)
	}
}

// TestPlanOfAMixedNode writes two plans to a golden file, so that a reader can see what a plan looks like.
func TestPlanOfAMixedNode(t *testing.T) {
	var b strings.Builder
	for _, now := range []time.Duration{time.Minute, 2*time.Hour - 20*time.Second} {
		in := Input{
			Now: at(now), Start: noon, Deadline: at(2 * time.Hour), NodeReachable: true,
			OrphanedDaemonSets: map[types.UID]bool{"old-agents": true},
			Attempts: map[types.UID]Attempt{
				"db-0": {Failures: 3, NotBefore: at(time.Minute + 10*time.Second), Budgets: []string{"db"},
					Explanation: "The disruption budget db needs 2 healthy pods and has 2 currently"},
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
		}
		d := Plan(in)
		fmt.Fprintf(&b, "after %s: done %t, forced %t, check again after %s\n", now, d.IsDone, d.IsForced, d.NextCheck)
		w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "  ACTION\tPOD\tGRACE PERIOD\tREASON")
		for _, s := range d.Steps {
			grace := "its own"
			if s.Grace > 0 {
				grace = fmt.Sprint(s.Grace, " s")
			}
			fmt.Fprintf(w, "  %s\t%s\t%s\t%s\n", s.Action, s.Pod, grace, s.Explanation)
		}
		w.Flush()
		for _, blocker := range blockers(d.Steps, in.Attempts) {
			fmt.Fprintf(&b, "  blocked by: %s\n", blocker)
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
	return Input{Attempts: map[types.UID]Attempt{pod: {Failures: 1, NotBefore: until, Budgets: []string{"pdb"},
		Explanation: "refused"}}}
}

func undeletable(since, until time.Time) Input {
	return Input{Attempts: map[types.UID]Attempt{"web": {Failures: 1, FirstDeletion: since, NotBefore: until, Explanation: "denied"}}}
}
