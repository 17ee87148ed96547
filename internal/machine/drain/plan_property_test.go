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

	"machinist.dev/machinist/api/v1beta1"
)

// TestRandomDrainsRespectBudgetsAndEnd executes the plans for many random nodes in a simulation. Budgets refuse
// evictions, and pods need time to end. Some pods never end, and some pods cannot be deleted. Every drain must end.
// By invariant I7, no pod is deleted too early or without a grace period, and no pod is forgotten.
//
// Half of the nodes have rules. No pod may be evicted or deleted against its rule. At most one pod with volumes may be
// evicted at a time.
//
// Rules: budgets-hold-until-deadline, drain-rules-decide, drain-rules-order, completion-bounded-by-deadline,
// volume-pods-one-at-a-time.
func TestRandomDrainsRespectBudgetsAndEnd(t *testing.T) {
	reached := map[string]int{}
	for seed := range uint64(500) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { newDrainedNode(seed).drain(t, reached) })
	}
	for _, what := range []string{"skipped", "completed", "deleted at the end of the wait", "second order",
		"second pod with volumes", "volume awaited"} {
		if reached[what] == 0 {
			t.Errorf("no drain reached: %s", what)
		}
	}
}

// drainedNode simulates one node with its pods, and the behavior of the API server and the kubelet that matters for a
// drain.
type drainedNode struct {
	now, start, deadline time.Time
	reachable            bool
	pods                 []*worldPod
	attempts             map[types.UID]Attempt

	policy *v1beta1.MachineDrain
	// detachedAt contains the times at which the volumes of pods that are gone will be detached. usedUntil contains the
	// times at which these pods were gone.
	detachedAt, usedUntil map[string]time.Time
	evictedWithVolumes    int
}

type worldPod struct {
	corev1.Pod
	protectedUntil time.Time // a budget refuses evictions until then
	undeletable    bool      // an admission webhook refuses deletions
	stuck          bool      // the pod never ends, because of a finalizer or its kubelet
	tried          bool      // an eviction or deletion was sent

	behavior    v1beta1.DrainBehavior
	order       int32
	completesAt time.Time // the time at which the pod ends by itself, or zero
	detach      time.Duration
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
		p.behavior = v1beta1.DrainBehaviorDrain
		w.pods = append(w.pods, p)
	}
	if seed%2 == 0 {
		w.addRules(r)
	}
	return w
}

// addRules gives each pod a random behavior by its own label, and some pods a volume.
func (w *drainedNode) addRules(r *rand.Rand) {
	w.policy = &v1beta1.MachineDrain{PodsWithVolumes: v1beta1.VolumePodsOneAtATime}
	w.detachedAt, w.usedUntil = map[string]time.Time{}, map[string]time.Time{}
	for _, p := range w.pods {
		switch r.IntN(6) {
		case 0:
			p.behavior = v1beta1.DrainBehaviorSkip
		case 1:
			p.behavior = v1beta1.DrainBehaviorWaitCompleted
			if r.IntN(2) == 0 {
				p.completesAt = noon.Add(time.Duration(r.IntN(600)) * time.Second)
			}
		case 2, 3:
			p.order = int32(r.IntN(5) - 2)
		}
		if r.IntN(2) == 0 {
			withClaim(p.Name)(&p.Pod)
			p.detach = time.Duration(r.IntN(500)) * time.Second
		}
		labelled("app", p.Name)(&p.Pod)
		w.policy.Rules = append(w.policy.Rules, aRule(p.Name, p.behavior, p.order, selecting("app", p.Name)))
	}
}

// volumeTimeout is the maximum wait for the volume of an earlier pod.
const volumeTimeout = 5 * time.Minute

// observe adds the volumes that are still attached although no pod uses them. unusedSince contains what the controller
// remembers.
func (w *drainedNode) observe(in *Input, unusedSince map[string]time.Time) {
	in.Policy, in.VolumeDetachTimeout = w.policy, volumeTimeout
	for volume, at := range w.detachedAt {
		if !w.now.Before(at) {
			continue
		}
		if unusedSince[volume].IsZero() {
			unusedSince[volume] = w.now
		}
		in.UnusedVolumes = append(in.UnusedVolumes, UnusedVolume{volume, unusedSince[volume]})
	}
}

// checkRules checks a plan by the documentation of spec.drain. It does not use the planner's sort order.
func (w *drainedNode) checkRules(t *testing.T, d Decision, reached map[string]int) {
	evicted := 0
	for _, s := range d.Steps {
		if !s.due() {
			continue
		}
		p := w.pod(s.UID)
		if p.behavior == v1beta1.DrainBehaviorSkip {
			t.Errorf("%s: %s of pod %s, which a rule skips", w.now, s.Action, s.Pod)
		}
		if p.behavior == v1beta1.DrainBehaviorWaitCompleted && s.Action == ActionEvict {
			t.Errorf("%s: pod %s is evicted, but must complete", w.now, s.Pod)
		}
		if p.behavior == v1beta1.DrainBehaviorWaitCompleted && s.Action == ActionDelete {
			reached["deleted at the end of the wait"]++ // checkPolite checks the time.
		}
		if s.Action != ActionEvict {
			continue
		}
		for _, other := range w.pods {
			gone := isFinished(&other.Pod) || isMirror(&other.Pod) || daemonSetOf(&other.Pod) != nil ||
				other.behavior == v1beta1.DrainBehaviorSkip || !w.reachable && isTerminating(&other.Pod)
			if other.order < p.order && !gone && w.now.Before(w.deadline) {
				t.Errorf("%s: pod %s of order %d is evicted before pod %s of order %d", w.now, s.Pod, p.order, other.Name, other.order)
			}
		}
		if p.order > 0 {
			reached["second order"]++
		}
		if w.policy == nil || len(p.Spec.Volumes) == 0 {
			continue
		}
		evicted++
		w.checkVolumes(t, p, reached)
	}
	if evicted > 1 {
		t.Errorf("%s: %d pods with volumes are evicted at once", w.now, evicted)
	}
}

func (w *drainedNode) checkVolumes(t *testing.T, p *worldPod, reached map[string]int) {
	for _, other := range w.pods {
		if other != p && len(other.Spec.Volumes) > 0 && isTerminating(&other.Pod) && !isFinished(&other.Pod) && w.reachable &&
			other.behavior != v1beta1.DrainBehaviorSkip && !isMirror(&other.Pod) && daemonSetOf(&other.Pod) == nil &&
			w.now.Before(w.deadline) {
			t.Errorf("%s: pod %s is evicted while pod %s is terminating", w.now, p.Name, other.Name)
		}
	}
	for volume, at := range w.detachedAt {
		if w.now.Before(at) && w.now.Before(w.usedUntil[volume].Add(volumeTimeout)) {
			t.Errorf("%s: pod %s is evicted while %s is attached", w.now, p.Name, volume)
		}
		reached["volume awaited"]++
	}
	if w.evictedWithVolumes++; w.evictedWithVolumes > 1 {
		reached["second pod with volumes"]++
	}
}

func (w *drainedNode) pod(uid types.UID) *worldPod {
	return w.pods[slices.IndexFunc(w.pods, func(p *worldPod) bool { return p.UID == uid })]
}

func (w *drainedNode) drain(t *testing.T, reached map[string]int) {
	var recheck time.Duration
	unusedSince := map[string]time.Time{}
	for pass := 0; ; pass++ {
		in := Input{Now: w.now, Start: w.start, Deadline: w.deadline, NodeReachable: w.reachable, Attempts: w.attempts,
			RecheckAfter: recheck}
		for _, p := range w.pods {
			in.Pods = append(in.Pods, p.Pod)
		}
		w.observe(&in, unusedSince)
		d := Plan(in)
		w.checkTurns(t, d)
		w.checkRules(t, d, reached)
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
		switch {
		case p.behavior == v1beta1.DrainBehaviorSkip:
			reached["skipped"]++
		case p.behavior == v1beta1.DrainBehaviorWaitCompleted && isFinished(&p.Pod):
			reached["completed"]++
		}
		if !isMirror(&p.Pod) && daemonSetOf(&p.Pod) == nil && !isFinished(&p.Pod) && !p.tried &&
			p.behavior != v1beta1.DrainBehaviorSkip {
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
			return other.order == s.order && other.turn < s.turn && other.pending()
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
		} else if p.detach > 0 {
			w.usedUntil["pv-"+p.Name], w.detachedAt["pv-"+p.Name] = w.now, w.now.Add(p.detach)
		}
		if !p.completesAt.IsZero() && !w.now.Before(p.completesAt) && !isFinished(&p.Pod) {
			inPhase(corev1.PodSucceeded)(&p.Pod)
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
		if b.bool() {
			in.Policy = b.policy()
			in.VolumeDetachTimeout = time.Duration(b.int64())
			in.VolumesUnknown = b.bool()
			in.UnusedVolumes = []UnusedVolume{{b.string(), in.Now.Add(time.Duration(b.int64()))}}
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
			if b := treatmentOf(s.pod, compileRules(in.Policy), nil).behavior; s.due() && b == v1beta1.DrainBehaviorSkip ||
				s.Action == ActionEvict && b == v1beta1.DrainBehaviorWaitCompleted {
				t.Errorf("%s: %s against its behavior %s", s.Pod, s.Action, b)
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

// policy returns random rules. Most of their selectors are invalid or select no pod.
func (b *bytesSource) policy() *v1beta1.MachineDrain {
	evictions := []v1beta1.VolumePodEviction{"", v1beta1.VolumePodsOneAtATime, "?"}
	policy := &v1beta1.MachineDrain{PodsWithVolumes: evictions[b.byte()%3]}
	for range b.byte() % 4 {
		rule := v1beta1.DrainRule{Name: b.string(), Order: int32(b.int64()),
			Behavior: v1beta1.DrainBehavior([]string{"Drain", "Skip", "WaitCompleted", ""}[b.byte()%4])}
		switch b.byte() % 4 {
		case 0:
			rule.PodSelector = selecting(b.string(), b.string())
		case 1:
			rule.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{b.string(): b.string()}}
		case 2:
			rule.PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: b.string(),
				Operator: metav1.LabelSelectorOperator([]string{"In", "Exists", "DoesNotExist", ""}[b.byte()%4]), Values: []string{b.string()}}}
		}
		policy.Rules = append(policy.Rules, rule)
	}
	return policy
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
	if labels := b.byte(); labels&1 > 0 {
		labelled(podDrainLabel, []string{"skip", "wait-completed", b.string()}[labels%3])(&pod)
		withClaim(b.string())(&pod)
	}
	if flags&128 > 0 {
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{Kind: b.string()})
	}
	return pod
}
