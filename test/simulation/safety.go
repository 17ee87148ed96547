package simulation

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/test/apiserver"
)

// safetyState is what the rooms of health and safety find in a world, and what is known of what they do. Its zero
// value is a world without such rooms.
type safetyState struct {
	optionalReconcilers Controllers
	links               [2]link
	// steady says that nobody asks for other machines: there is none exchanged but for its health.
	steady bool
	// reportOnly has orphans reported and left alone, strangers are the instances that nobody may remove.
	reportOnly bool
	strangers  map[string]bool
	// lost are the instances that lost their machines with others, true where these are most. letGo says that a person
	// lets them be removed.
	lost  map[string]bool
	letGo bool
	// left are the names of machines that were given up while the target cluster was unreachable: a Node and a token of
	// theirs may be left there, which their last event says.
	left map[string]bool
	// past are the outages that everybody has noticed, by cluster.
	past [2][]reachability.Outage
	// frozen is when each set was frozen, and thawed.
	frozen map[uid][]freezes

	// nodes is how each Node fares, and melting since when most of them do not; melted is when that ended last.
	nodes   map[uid]wellness
	melting time.Time
	melted  time.Time
	// slept is when everybody went on after time had jumped.
	slept []time.Time
	// requests are the CertificateSigningRequests by their names, and what they are.
	requests map[string]asking
}

func (g safetyState) clone() safetyState {
	g.strangers, g.nodes, g.requests, g.frozen = maps.Clone(g.strangers), maps.Clone(g.nodes), maps.Clone(g.requests), maps.Clone(g.frozen)
	g.left, g.slept, g.lost = maps.Clone(g.left), slices.Clone(g.slept), maps.Clone(g.lost)
	for i := range g.past {
		g.past[i] = slices.Clone(g.past[i])
	}
	for id, all := range g.frozen {
		g.frozen[id] = slices.Clone(all)
	}
	return g
}

// enable gives a world the rooms.
func (w *World) enable(optionalReconcilers Controllers) {
	w.safety = safetyState{optionalReconcilers: optionalReconcilers, strangers: map[string]bool{}, lost: map[string]bool{},
		nodes: map[uid]wellness{}, requests: map[string]asking{}, frozen: map[uid][]freezes{}, left: map[string]bool{}}
}

// safetyChoices returns what happens in a world with such rooms beside what processes and kubelets do.
func (w *World) safetyChoices() []choice {
	if w.safety.optionalReconcilers == 0 {
		return nil
	}
	return slices.Concat(w.severing(), w.signing())
}

// safetyDue returns when something is due.
func (w *World) safetyDue() (at time.Time, any bool) {
	if w.safety.optionalReconcilers == 0 {
		return time.Time{}, false
	}
	consider := func(t time.Time, ok bool) {
		if ok && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	consider(w.nextSevering())
	for _, p := range w.processes {
		consider(p.nextProbe())
	}
	return at, any
}

// safetyMissing says what is not as it must be in the end.
func (w *World) safetyMissing() (missing []string) {
	if w.safety.optionalReconcilers == 0 {
		return nil
	}
	return slices.Concat(w.outdatedTaintsLeft(), w.certificatesMissing(), w.freezesMissing())
}

// steadily says that nobody will ask for other machines from now on.
func steadily() Action {
	return Action{Name: "leave the fleet as it is", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.safety.steady = true
		return nil
	}}
}

// after makes people wait before a action.
func (d Action) after(wait time.Duration) Action {
	d.Wait = wait
	return d
}

// targetUnreachable reports whether the target cluster is unreachable for everybody.
func (g safetyState) targetUnreachable() bool {
	return g.links[toTarget].down() && g.links[toTarget].everyone
}

// checkControlChange judges a change in the control cluster.
func (o *oracle) checkControlChange(c apiserver.Change) {
	if o.world.safety.optionalReconcilers == 0 {
		return
	}
	o.mayRemediate(c)
	o.followFreeze(c)
	if m, ok := c.New.(*v1beta1.Machine); ok && c.Type == watch.Added {
		o.mayMakeFrozen(c, m)
	} else if ok && c.Type == watch.Deleted && o.world.safety.links[toTarget].down() && o.mayLeave(m) {
		o.world.safety.left[m.Name] = true
	}
}

// patienceWithTarget is for how long a deletion tries to reach the target cluster at least, by times in whole seconds.
const patienceWithTarget = 29 * time.Second

// mayLeave reports whether a machine may go although the target cluster cannot be asked what it has there: where its
// user insists, or its deletion has tried for long enough.
func (o *oracle) mayLeave(m *v1beta1.Machine) bool {
	_, forced := m.Annotations[v1beta1.AnnotationForceDelete]
	return forced || m.DeletionTimestamp == nil || o.world.clock.Since(m.DeletionTimestamp.Time) >= patienceWithTarget
}

// checkTargetChange judges a change in the target cluster.
func (o *oracle) checkTargetChange(c apiserver.Change) {
	if o.world.safety.optionalReconcilers == 0 {
		return
	}
	o.world.safety.follow(o.world, c)
	o.mayApprove(c)
}

// leftNodes and leftTokens count what may be left in a target cluster that was unreachable, and the Nodes of
// instances that nobody could know of.
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
	return w.cloud.past.unreported[id] || w.safety.left[node.Name] && w.cloud.byID(id) == nil
}

func (w *World) leftTokens() (n int) {
	for _, o := range w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret")) {
		if _, name, _ := strings.Cut(o.GetAnnotations()["machinist.dev/bootstrap-token-machine"], "/"); w.safety.left[name] {
			n++
		}
	}
	return n
}
