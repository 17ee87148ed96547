package drain

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestRandomDrainsRespectBudgetsAndEnd executes the plans for many random nodes in a simulation. Budgets refuse
// evictions, and pods need time to end. Some pods never end, and some pods cannot be deleted. Every drain must end.
// By invariant I7, no pod is deleted too early or without a grace period, and no pod is forgotten.
//
// Rule: budgets-hold-until-deadline.
func TestRandomDrainsRespectBudgetsAndEnd(t *testing.T) {
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newDrainedNode(seed).drain(t) })
	}
}

// drainedNode simulates one node with its pods, and the behavior of the API server and the kubelet that matters for a
// drain.
type drainedNode struct {
	now, start, deadline time.Time
	reachable            bool
	pods                 []*worldPod
	attempts             map[types.UID]Attempt
}

type worldPod struct {
	corev1.Pod
	protectedUntil time.Time // a budget refuses evictions until then
	undeletable    bool      // an admission webhook refuses deletions
	stuck          bool      // the pod never ends, because of a finalizer or its kubelet
	tried          bool      // an eviction or deletion was sent
}

func newDrainedNode(seed uint64) *drainedNode {
	r := rand.New(rand.NewPCG(seed, 0))
	pick := func(seconds ...int64) time.Duration {
		return time.Duration(seconds[r.IntN(len(seconds))]) * time.Second
	}
	w := &drainedNode{now: noon, start: noon, deadline: noon.Add(pick(0, 1, 10, 60, 600, 7200)), reachable: r.IntN(4) > 0}
	for i := range r.IntN(12) {
		p := &worldPod{
			Pod:            aPod(fmt.Sprint("ns/pod-", i)),
			protectedUntil: noon.Add(pick(0, 0, 0, 30, 300, 100_000)),
			undeletable:    r.IntN(20) == 0,
			stuck:          r.IntN(10) == 0,
		}
		if r.IntN(4) > 0 {
			withGrace([]int64{-1, 0, 1, 30, 600, 86400, 1 << 62}[r.IntN(7)])(&p.Pod)
		}
		switch r.IntN(8) {
		case 0:
			ofDaemonSet("agents")(&p.Pod)
		case 1:
			mirror(&p.Pod)
		case 2:
			inPhase(corev1.PodSucceeded)(&p.Pod)
		case 3, 4:
			withPriority(2_000_000_000)(&p.Pod)
		case 5:
			terminating(noon.Add(-pick(0, 10, 1000)), 120)(&p.Pod)
			p.tried = true
		}
		w.pods = append(w.pods, p)
	}
	return w
}

func (w *drainedNode) drain(t *testing.T) {
	var recheck time.Duration
	for pass := 0; ; pass++ {
		in := Input{Now: w.now, Start: w.start, Deadline: w.deadline, NodeReachable: w.reachable, Attempts: w.attempts,
			RecheckAfter: recheck}
		for _, p := range w.pods {
			in.Pods = append(in.Pods, p.Pod)
		}
		d := Plan(in)
		w.checkTurns(t, d)
		if d.IsDone {
			break
		}
		if d.NextCheck <= 0 {
			t.Fatalf("%s: the drain is not done and has no next check", w.now)
		}
		w.apply(t, d)
		recheck = d.RecheckAfter
		w.pass(d.NextCheck)
		if pass > 20_000 {
			t.Fatalf("the drain does not end within %d passes, until %s", pass, w.now.Sub(w.start))
		}
	}
	for _, p := range w.pods {
		if !isMirror(&p.Pod) && daemonSetOf(&p.Pod) == nil && !isFinished(&p.Pod) && !p.tried {
			t.Errorf("the drain was done at %s without an attempt for %s", w.now.Sub(w.start), p.Name)
		}
	}
	if end := w.deadline.Add(deletePatience + terminationLeeway + maxRecheck); w.now.After(end) {
		t.Errorf("the drain took until %s, more than %s", w.now.Sub(w.start), end.Sub(w.start))
	}
}

func (w *drainedNode) checkTurns(t *testing.T, d Decision) {
	for _, s := range d.Steps {
		if s.Action == ActionEvict && slices.ContainsFunc(d.Steps, func(other Step) bool {
			return other.turn < s.turn && other.pending()
		}) {
			t.Errorf("%s: pod %s is evicted before its turn: %+v", w.now, s.Pod, d.Steps)
		}
	}
}

func (w *drainedNode) apply(t *testing.T, d Decision) {
	for _, s := range d.Steps {
		var p *worldPod
		for _, candidate := range w.pods {
			if candidate.UID == s.UID {
				p = candidate
			}
		}
		var err error
		switch s.Action {
		case ActionEvict:
			err = w.evict(p, s)
		case ActionDelete:
			w.checkPolite(t, p, s)
			err = w.delete(p, s.Grace)
		default:
			continue
		}
		p.tried = true
		_, try := resultOf(s.Action, err, w.attempts[s.UID], w.now)
		if w.attempts == nil {
			w.attempts = map[types.UID]Attempt{}
		}
		if delete(w.attempts, s.UID); try.Failures > 0 {
			w.attempts[s.UID] = try
		}
	}
}

// checkPolite checks invariant I7. It does not use the time calculations of the planner.
func (w *drainedNode) checkPolite(t *testing.T, p *worldPod, s Step) {
	if s.Grace < 1 {
		t.Errorf("%s is deleted with a grace period of %d s", p.Name, s.Grace)
	}
	if isTerminating(&p.Pod) {
		if ends := w.now.Add(time.Duration(s.Grace+1) * time.Second); ends.Before(w.deadline) {
			t.Errorf("the grace period of %s is shortened to %d s, %s before the deadline", p.Name, s.Grace, w.deadline.Sub(w.now))
		}
		return
	}
	asked := 30.0
	if p.Spec.TerminationGracePeriodSeconds != nil {
		asked = max(float64(*p.Spec.TerminationGracePeriodSeconds), 1)
	}
	early := min(asked, w.deadline.Sub(w.start).Seconds()/2)
	if left := w.deadline.Sub(w.now).Seconds(); left > early {
		t.Errorf("%s (grace period %v s) is deleted %v s before the deadline, more than %v", p.Name, asked, left, early)
	}
}

func (w *drainedNode) evict(p *worldPod, s Step) error {
	if w.now.Before(p.protectedUntil) {
		err := apierrors.NewTooManyRequests("no", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "refused"}}
		return err
	}
	grace := s.Grace
	if grace == 0 {
		grace = int64(graceOf(p) / time.Second)
	}
	return w.delete(p, grace)
}

func graceOf(p *worldPod) time.Duration { return grace(&p.Pod) }

// delete handles a delete request in the same way as the API server. The first request sets the grace period of the
// pod, and later requests can only shorten this period.
func (w *drainedNode) delete(p *worldPod, grace int64) error {
	if p.undeletable {
		return errors.New("denied")
	}
	since := w.now
	if isTerminating(&p.Pod) {
		before := *p.DeletionGracePeriodSeconds
		since = p.DeletionTimestamp.Add(-time.Duration(before) * time.Second)
		grace = min(grace, before)
	}
	terminating(since, grace)(&p.Pod)
	return nil
}

func (w *drainedNode) pass(d time.Duration) {
	w.now = w.now.Add(d)
	var left []*worldPod
	for _, p := range w.pods {
		if ended := isTerminating(&p.Pod) && !p.DeletionTimestamp.After(w.now); !ended || p.stuck || !w.reachable {
			left = append(left, p)
		}
	}
	w.pods = left
}

// FuzzPlan creates pods from random bytes. Plan must not panic and must not forget a pod. Plan must not delete a pod
// too early or without a grace period. If Plan waits, it must return the time of the next check.
func FuzzPlan(f *testing.F) {
	f.Add([]byte{}, int64(0), int64(0), int64(0), true)
	f.Add([]byte("\x00\x01\x02\x03\x04\x05\x06\x07some pods with strange \xff\xff\xff\xff\xff values"), int64(60),
		int64(3600), int64(7200), true)
	f.Add([]byte("\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6\xf5\xf4\xf3\xf2\xf1\xf0"), int64(-1), int64(1)<<62,
		int64(-1)<<62, false)
	f.Fuzz(func(t *testing.T, data []byte, now, start, end int64, reachable bool) {
		b := bytesSource(data)
		in := Input{
			Now: time.Unix(now%1e10, 0), Start: time.Unix(start%1e10, 0), Deadline: time.Unix(end%1e10, 0),
			NodeReachable: reachable, Attempts: map[types.UID]Attempt{},
			OrphanedDaemonSets: map[types.UID]bool{"daemons": b.bool()},
			RecheckAfter:       time.Duration(b.int64()),
		}
		for len(b) > 0 && len(in.Pods) < 50 {
			pod := b.pod(in.Now)
			in.Pods = append(in.Pods, pod)
			if b.bool() {
				in.Attempts[pod.UID] = Attempt{
					Failures: int(b.int64()), NotBefore: in.Now.Add(time.Duration(b.int64())), Explanation: "because",
				}
			}
		}
		d := Plan(in)
		if len(d.Steps) != len(in.Pods) {
			t.Fatalf("%d steps for %d pods", len(d.Steps), len(in.Pods))
		}
		var pending bool
		for _, s := range d.Steps {
			pending = pending || s.Action != ActionSkip && s.Action != ActionIgnore
			if s.Action == ActionDelete && s.Grace < 1 {
				t.Errorf("%s is deleted with a grace period of %d s", s.Pod, s.Grace)
			}
			if s.Action == ActionDelete && in.Now.Before(in.Start.Add(in.Deadline.Sub(in.Start)/2)) &&
				in.Now.Before(in.Deadline) {
				t.Errorf("%s is deleted in the first half of the drain", s.Pod)
			}
			if s.Explanation == "" {
				t.Errorf("%s: %s without a reason", s.Pod, s.Action)
			}
		}
		if pending == d.IsDone || d.IsDone != (d.NextCheck == 0) || d.NextCheck < 0 || d.NextCheck > idleRecheck {
			t.Errorf("pods pending %t, done %t, next check after %s", pending, d.IsDone, d.NextCheck)
		}
	})
}

// bytesSource reads values from fuzzed bytes. After the last byte, it returns zeros.
type bytesSource []byte

func (b *bytesSource) byte() (c byte) {
	if len(*b) > 0 {
		c, *b = (*b)[0], (*b)[1:]
	}
	return c
}

func (b *bytesSource) bool() bool { return b.byte()&1 == 1 }

// int64 returns an extreme value in about half of the calls.
func (b *bytesSource) int64() int64 {
	c := b.byte()
	value := int64(int8(b.byte()))
	return value << (c % 64)
}

func (b *bytesSource) string() string {
	n := min(int(b.byte()%8), len(*b))
	s := string((*b)[:n])
	*b = (*b)[n:]
	return s
}

func (b *bytesSource) pod(now time.Time) corev1.Pod {
	pod := corev1.Pod{}
	pod.Namespace, pod.Name, pod.UID = b.string(), b.string(), types.UID(b.string())
	pod.Status.Phase = corev1.PodPhase([]string{"", "Running", "Pending", "Succeeded", "Failed", "Unknown"}[b.byte()%6])
	flags := b.byte()
	if flags&1 > 0 {
		withGrace(b.int64())(&pod)
	}
	if flags&2 > 0 {
		withPriority(int32(b.int64()))(&pod)
	}
	if flags&4 > 0 {
		withPriorityClass(b.string())(&pod)
	}
	if flags&8 > 0 {
		mirror(&pod)
	}
	if flags&16 > 0 {
		ownedBy(b.string(), "DaemonSet", "daemons")(&pod)
	}
	if flags&32 > 0 {
		ends := metav1.NewTime(now.Add(time.Duration(b.int64())))
		pod.DeletionTimestamp = &ends
	}
	if flags&64 > 0 {
		grace := b.int64()
		pod.DeletionGracePeriodSeconds = &grace
	}
	if flags&128 > 0 {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: b.string()})
	}
	return pod
}
