package simulation

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/test/apiserver"
)

// Autoscaler is the name of the actor for writes by the autoscaler.
const Autoscaler = "autoscaler"

// minSize and maxSize are the bounds of a node group that must not become empty. Other groups have the minimum size 0.
const minSize, maxSize = 1, 6

// autoscaler imitates each request that cluster-autoscaler sends with its clusterapi provider. The autoscaler decides
// from its own caches, each with its own lag, but reads sizes and delete marks without a cache. Any other action may
// happen between two requests. All methods accept a nil receiver, which stands for a world without an autoscaler.
type autoscaler struct {
	world           *World
	control, target *cache
	laziness        map[string]int
	// remainingDecisions is the number of decisions that the autoscaler will still make. nextAction is the time of the
	// autoscaler's next action.
	remainingDecisions int
	nextAction         time.Time
	call               *call

	ledger   ledger
	capacity capacityLedger
	smallest int
}

func newAutoscaler(w *World, decisions int) (*autoscaler, error) {
	a := &autoscaler{world: w, remainingDecisions: decisions, nextAction: w.clock.at, laziness: map[string]int{}}
	if err := a.connect(); err != nil {
		return nil, err
	}
	for _, v := range a.views() {
		a.laziness[v.gvk.Kind] = []int{1, 1, 3, 20}[w.random.IntN(4)]
		if err := v.fill(0); err != nil {
			return nil, err
		}
	}
	a.ledger.begin(w)
	a.capacity.begin(w)
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		smallest, _, err := autoscaling.Bounds(o.GetAnnotations())
		if err != nil {
			return nil, err
		}
		a.smallest = smallest
	}
	return a, nil
}

func (a *autoscaler) connect() error {
	a.control, a.target = newCache(a.world.control, a.world.scheme), newCache(a.world.target, a.world.scheme)
	for _, o := range []client.Object{&v1beta1.MachineDeployment{}, &v1beta1.MachineSet{}, &v1beta1.Machine{}} {
		if err := a.control.add(wiring.Control, o, nil); err != nil {
			return err
		}
	}
	return a.target.add(wiring.Target, &corev1.Node{}, nil)
}

func (a *autoscaler) views() []*view { return slices.Concat(a.control.views, a.target.views) }

func (a *autoscaler) clone(w *World) (*autoscaler, error) {
	if a == nil {
		return nil, nil
	}
	f := &autoscaler{world: w, laziness: a.laziness, remainingDecisions: a.remainingDecisions, nextAction: a.nextAction,
		ledger: a.ledger.clone(w), capacity: a.capacity.clone(w), smallest: a.smallest}
	if a.call != nil {
		c := *a.call
		c.victims = slices.Clone(c.victims)
		f.call = &c
	}
	if err := f.connect(); err != nil {
		return nil, err
	}
	ours := f.views()
	for i, v := range a.views() {
		ours[i].resume(v)
	}
	return f, nil
}

func (a *autoscaler) possible(out, late []choice) (_, _ []choice) {
	if a == nil {
		return out, late
	}
	for _, v := range a.views() {
		if !v.behind() {
			continue
		}
		step := choice{"cache of the autoscaler", func() error { return a.showNext(v) }}
		if l := a.laziness[v.gvk.Kind]; l > 1 && a.world.random.IntN(l) > 0 {
			late = append(late, step)
		} else {
			out = append(out, step)
		}
	}
	if !a.done() && !a.nextAction.After(a.world.clock.at) {
		out = append(out, choice{"autoscaler", a.act})
	}
	return out, late
}

func (a *autoscaler) done() bool { return a.remainingDecisions == 0 && a.call == nil }

func (a *autoscaler) next() (time.Time, bool) {
	if a == nil || a.done() {
		return time.Time{}, false
	}
	return a.nextAction, a.nextAction.After(a.world.clock.at)
}

// showNext adds the next change of a kind to the cache. showNext returns an error if a MachineDeployment or MachineSet
// lacks the field replicas. Without this field, the real autoscaler stops managing all its node groups.
func (a *autoscaler) showNext(v *view) error {
	c := v.backlog[0]
	a.logf("sees %s %s %s", c.Type, c.GVK.Kind, c.Key)
	var replicas *int32
	switch o := c.New.(type) {
	case *v1beta1.MachineDeployment:
		replicas = o.Spec.Replicas
	case *v1beta1.MachineSet:
		replicas = o.Spec.Replicas
	default:
		return v.advance()
	}
	if replicas == nil {
		a.world.oracle.breach("autoscaler", "%s %s has no spec.replicas", c.GVK.Kind, c.Key)
	}
	return v.advance()
}

func (a *autoscaler) logf(format string, args ...any) {
	if a.world.story != nil {
		a.world.logf("autoscaler: %s", fmt.Sprintf(format, args...))
	}
}

func (a *autoscaler) act() error {
	w := a.world
	w.disturbed = w.clock.at
	if a.call == nil {
		a.remainingDecisions--
		a.call = a.decide()
	} else {
		next := a.call.next
		a.call.next = nil
		if err := next(a); err != nil {
			a.logf("cancels the call: %v", err)
			a.call = nil
		}
	}
	switch {
	case a.call != nil && a.call.next == nil:
		a.call = nil
	case a.call != nil && w.random.IntN(25) == 0:
		if err := a.crash(); err != nil {
			return err
		}
	}
	a.nextAction = w.clock.at.Add(a.pause())
	return nil
}

func (a *autoscaler) pause() time.Duration {
	r := a.world.random
	longest := []time.Duration{0, 0, time.Second, 10 * time.Second}
	if a.call == nil {
		longest = []time.Duration{0, 5 * time.Second, time.Minute, 3 * time.Minute}
	}
	if d := longest[r.IntN(len(longest))]; d > 0 {
		return time.Duration(r.Int64N(int64(d)))
	}
	return 0
}

func (a *autoscaler) crash() error {
	a.logf("crashes")
	a.call = nil
	for _, v := range a.views() {
		if err := v.fill(0); err != nil {
			return err
		}
	}
	return nil
}

// randomRefusal returns an error for some writes, which then have no effect.
func (a *autoscaler) randomRefusal() error {
	if a.world.random.IntN(15) == 0 {
		return errNoAnswer
	}
	return nil
}

func (a *autoscaler) client() client.Client { return a.world.control.Client(Autoscaler) }

func (a *autoscaler) missing() []string {
	if a == nil {
		return nil
	}
	missing := append(a.ledger.missing(), a.capacity.missing()...)
	if !a.done() {
		missing = append(missing, fmt.Sprintf("the autoscaler has %d decisions left", a.remainingDecisions))
	}
	return missing
}

func (a *autoscaler) check(c apiserver.Change) {
	if a != nil {
		a.ledger.check(c, a.victim())
		a.capacity.check(c)
	}
}

func nodeGroup(smallest int) func(*v1beta1.MachineDeployment) {
	return func(d *v1beta1.MachineDeployment) {
		d.Annotations = map[string]string{
			v1beta1.AutoscalerMinSizeAnnotation: fmt.Sprint(smallest), v1beta1.AutoscalerMaxSizeAnnotation: fmt.Sprint(maxSize),
		}
	}
}

// autoscaled starts an autoscaler that changes the size of a fleet several times, while instances vanish.
func autoscaled(r *rand.Rand) []Action {
	decisions := 3 + r.IntN(5)
	actions := []Action{setStrategy(strategy(r.IntN(3), r.IntN(3))), autoscale(decisions)}
	if r.IntN(2) == 0 {
		actions = append(actions, loseInstance(r.IntN(8)).onceDecisionsLeft(r.IntN(decisions)))
	}
	return actions
}

// autoscaledRoll returns the actions of the function autoscaled, with an additional rollout of the fleet. Some runs
// revert this rollout.
func autoscaledRoll(r *rand.Rand) []Action {
	actions := autoscaled(r)
	left := 1 + r.IntN(5)
	actions = slices.Insert(actions, 2, roll("b").onceDecisionsLeft(left))
	if r.IntN(4) == 0 {
		actions = slices.Insert(actions, 3, roll([]string{"a", "c"}[r.IntN(2)]).onceDecisionsLeft(r.IntN(left)))
	}
	return actions
}

func autoscale(decisions int) Action {
	return Action{Name: "start an autoscaler", Do: func(_ context.Context, w *World, _ client.Client) (err error) {
		w.autoscaler, err = newAutoscaler(w, decisions)
		return err
	}}
}

func (d Action) onceDecisionsLeft(n int) Action {
	d.Condition = func(w *World) bool { return w.autoscaler != nil && w.autoscaler.remainingDecisions <= n }
	return d
}

// loseInstance returns an action that removes an instance with a Node, which need not be Ready. An instance without
// a Node is not removed, because its loss is noticed only after the join timeout, which is too long for a run. An
// instance with a silent kubelet is not removed either, because only the health checks and the orphan collection
// would notice its loss, and the scenario does not run them.
func loseInstance(i int) Action {
	return Action{Name: "lose an instance", Do: func(_ context.Context, w *World, _ client.Client) error {
		known := slices.DeleteFunc(w.recordedInstances(), func(in *instance) bool {
			return in.hung || w.node(in.NodeName) == nil
		})
		if n := len(known); n > 0 {
			lost := known[n-1-i%n]
			w.logf("the instance is %s of %s", lost.ProviderID, lost.MachineKey)
			w.cloud.instances = slices.DeleteFunc(slices.Clone(w.cloud.instances), func(in *instance) bool { return in == lost })
		}
		return nil
	}}
}
