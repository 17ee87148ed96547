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
	"machinist.dev/machinist/internal/reachability"
	"machinist.dev/machinist/test/apiserver"
)

// guards is what the rooms of health and safety find in a world, and what is known of what they do. Its zero value is a
// world without such rooms.
type guards struct {
	rooms Rooms
	links [2]link
	// steady says that nobody asks for other machines: none is exchanged but for its health.
	steady bool
	// reportOnly has orphans reported and left alone, strangers are the instances that nobody may remove.
	reportOnly bool
	strangers  map[string]bool
	// lost are the instances that lost their machines with others, true where these are most. letGo says that a person lets
	// them be removed.
	lost  map[string]bool
	letGo bool
	// left are the names of machines that were given up while the target cluster was away: a Node and a token of theirs may
	// be left there, which their last event says.
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

func (g guards) fork() guards {
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

// admit gives a world the rooms.
func (w *World) admit(rooms Rooms) {
	w.guards = guards{rooms: rooms, strangers: map[string]bool{}, lost: map[string]bool{}, nodes: map[uid]wellness{}, requests: map[string]asking{}, frozen: map[uid][]freezes{}, left: map[string]bool{}}
}

// guarding returns what happens in a world with such rooms beside what processes and kubelets do.
func (w *World) guarding() []action {
	if w.guards.rooms == 0 {
		return nil
	}
	return slices.Concat(w.severing(), w.signing())
}

// guardsDue returns when something is due.
func (w *World) guardsDue() (at time.Time, any bool) {
	if w.guards.rooms == 0 {
		return time.Time{}, false
	}
	consider := func(t time.Time, ok bool) {
		if ok && (!any || t.Before(at)) {
			at, any = t, true
		}
	}
	consider(w.nextSevering())
	for _, p := range w.processes {
		consider(p.nextLook())
	}
	return at, any
}

// guardsMissing says what is not as it shall be in the end.
func (w *World) guardsMissing() (missing []string) {
	if w.guards.rooms == 0 {
		return nil
	}
	return slices.Concat(w.marksMissing(), w.certificatesMissing(), w.freezesMissing())
}

// steadily says that nobody will ask for other machines from now on.
func steadily() Deed {
	return Deed{Name: "leave the fleet as it is", Do: func(_ context.Context, w *World, _ client.Client) error {
		w.guards.steady = true
		return nil
	}}
}

// after makes people wait before a deed.
func (d Deed) after(wait time.Duration) Deed {
	d.Wait = wait
	return d
}

// away reports whether the target cluster is away for everybody.
func (g guards) away() bool { return g.links[toTarget].down() && g.links[toTarget].everyone }

// guardControl judges a change in the control cluster.
func (o *oracle) guardControl(c apiserver.Change) {
	if o.world.guards.rooms == 0 {
		return
	}
	o.mayRemediate(c)
	o.followFreeze(c)
	if m, ok := c.New.(*v1beta1.Machine); ok && c.Type == watch.Added {
		o.mayMakeFrozen(c, m)
	} else if ok && c.Type == watch.Deleted && o.world.guards.links[toTarget].down() {
		o.world.guards.left[m.Name] = true
	}
}

// guardTarget judges a change in the target cluster.
func (o *oracle) guardTarget(c apiserver.Change) {
	if o.world.guards.rooms == 0 {
		return
	}
	o.world.guards.follow(o.world, c)
	o.mayApprove(c)
}

// leftNodes and leftTokens count what may be left in a target cluster that was away, and the Nodes of instances that nobody could
// know of.
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
	return w.cloud.past.untold[id] || w.guards.left[node.Name] && w.cloud.byID(id) == nil
}

func (w *World) leftTokens() (n int) {
	for _, o := range w.target.Snapshot(corev1.SchemeGroupVersion.WithKind("Secret")) {
		if _, name, _ := strings.Cut(o.GetAnnotations()["machinist.dev/bootstrap-token-machine"], "/"); w.guards.left[name] {
			n++
		}
	}
	return n
}
