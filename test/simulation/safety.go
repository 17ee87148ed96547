package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// safetyState contains the optional controllers for health and safety that a scenario uses, and the state of the
// simulated actors. The zero value has no such controllers.
type safetyState struct {
	optionalReconcilers Controllers
	links               [2]link
	// isSteady is true if users have stopped changing the fleet. From then on, machines are replaced only because of
	// their health.
	isSteady   bool
	reportOnly bool
	strangers  map[string]bool
	// lostInstances contains the instances whose Machines were lost at the same time. The value is true if most of
	// the instances are orphans.
	lostInstances map[string]bool
	// leftMachines contains the machines that were removed while the target cluster was unreachable. The last event
	// of such a machine says that its Node and token may remain in the target cluster.
	leftMachines map[string]bool
	// pastOutages contains, for each cluster, the earlier outages that all processes have noticed.
	pastOutages [2][]invariants.Outage
	frozen      map[uid][]freezeChange

	// nodes contains the health of each Node. meltdownSince is the time when most Nodes became unhealthy. meltdownEnded
	// is the time when the last meltdown ended.
	nodes         map[uid]nodeHealth
	meltdownSince time.Time
	meltdownEnded time.Time
	slept         []time.Time
	requests      map[string]requester
	// operatorResult is the result of the remediations of another operator, or empty if there is no operator.
	operatorResult metav1.ConditionStatus
}

func (g safetyState) clone() safetyState {
	g.strangers, g.nodes = maps.Clone(g.strangers), maps.Clone(g.nodes)
	g.requests, g.frozen = maps.Clone(g.requests), maps.Clone(g.frozen)
	g.leftMachines, g.slept, g.lostInstances = maps.Clone(g.leftMachines), slices.Clone(g.slept), maps.Clone(g.lostInstances)
	for i := range g.pastOutages {
		g.pastOutages[i] = slices.Clone(g.pastOutages[i])
	}
	for id, all := range g.frozen {
		g.frozen[id] = slices.Clone(all)
	}
	return g
}

func (w *World) enable(optionalReconcilers Controllers) {
	w.safety = safetyState{optionalReconcilers: optionalReconcilers, strangers: map[string]bool{},
		lostInstances: map[string]bool{},
		nodes:         map[uid]nodeHealth{}, requests: map[string]requester{}, frozen: map[uid][]freezeChange{},
		leftMachines: map[string]bool{}}
}

func (w *World) safetyChoices() []choice {
	if w.safety.optionalReconcilers == 0 {
		return nil
	}
	return slices.Concat(w.outageChoices(), w.signing(), w.operate())
}

func (w *World) safetyDue() (at time.Time, any bool) {
	if w.safety.optionalReconcilers == 0 {
		return time.Time{}, false
	}
	consider := func(t time.Time, ok bool) {
		if ok && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	consider(w.nextLeaseLoss())
	for _, p := range w.processes {
		consider(p.nextProbe())
	}
	return at, any
}

func (w *World) safetyMissing() (missing []string) {
	if w.safety.optionalReconcilers == 0 {
		return nil
	}
	return slices.Concat(w.outdatedTaintsLeft(), w.certificatesMissing(), w.frozenObjects(), w.remediationsLeft())
}

func stopUsers() Action {
	return Action{Name: "leave the fleet as it is", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.safety.isSteady = true
		return nil
	}}
}

func (d Action) after(wait time.Duration) Action {
	d.MinDelay = wait
	return d
}

func (g safetyState) targetUnreachable() bool {
	return g.links[toTarget].down() && g.links[toTarget].forAll
}

func (o *oracle) checkControlChange(c apiserver.Change) {
	if o.world.safety.optionalReconcilers == 0 {
		return
	}
	o.world.safety.follow(o.world, c)
	o.mayRemediate(c)
	o.followFreeze(c)
	if m, ok := c.New.(*v1beta1.Machine); ok && c.Type == watch.Added {
		o.mayCreateFrozen(c, m)
	} else if ok && c.Type == watch.Deleted && o.world.safety.links[toTarget].down() && o.mayLeave(m) {
		o.world.safety.leftMachines[m.Name] = true
	}
}

// targetRetryTime is the minimum time for which a deletion tries to reach the target cluster. API times are whole
// seconds.
const targetRetryTime = 29 * time.Second

// mayLeave reports whether a machine may be removed although its objects in the target cluster are unknown: after a
// force-delete, or after enough retries.
func (o *oracle) mayLeave(m *v1beta1.Machine) bool {
	_, forced := m.Annotations[v1beta1.AnnotationForceDelete]
	return forced || m.DeletionTimestamp == nil || o.world.clock.Since(m.DeletionTimestamp.Time) >= targetRetryTime
}

func (o *oracle) checkTargetChange(c apiserver.Change) {
	if o.world.safety.optionalReconcilers == 0 {
		return
	}
	o.world.safety.follow(o.world, c)
	o.mayApprove(c)
}

// leftNodes returns how many Nodes may remain, because the target cluster was unreachable, or because no process ever
// learned of the instance.
func (w *World) leftNodes() (n int) {
	for _, o := range w.target.Snapshot(nodeKind) {
		if w.isLeft(o.(*corev1.Node)) {
			n++
		}
	}
	return n
}

func (w *World) isLeft(node *corev1.Node) bool {
	id := node.Spec.ProviderID
	return w.cloud.past.unreportedInstances[id] || w.safety.leftMachines[node.Name] && w.cloud.byID(id) == nil
}

func (w *World) leftTokens() (n int) {
	for _, o := range w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret")) {
		_, name, _ := strings.Cut(o.GetAnnotations()[tokenMachine], "/")
		if w.safety.leftMachines[name] || w.corrupted.isToken(o.GetName()) {
			n++
		}
	}
	return n
}
