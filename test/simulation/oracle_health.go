package simulation

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/test/apiserver"
)

// wellness is how a Node fares, for all that is true and not only known.
type wellness struct {
	well bool
	// since is since when, and illSince since when it was not well before that.
	since, illSince time.Time
	// revision is that of the change to how it is.
	revision int64
}

// wellKnown is how long a truth takes at most until processes that are late know it.
const wellKnown = longestBehind + time.Second

// follow takes note of how Nodes fare.
func (g *safetyState) follow(w *World, c apiserver.Change) {
	node, ok := c.New.(*corev1.Node)
	if !ok || g.nodes == nil {
		return
	}
	now := w.clock.at
	before, known := g.nodes[node.UID]
	well := c.Type != watch.Deleted && readiness(node) == corev1.ConditionTrue
	switch {
	case !known:
		g.nodes[node.UID] = wellness{well, now, now, c.Revision}
	case before.well && !well:
		g.nodes[node.UID] = wellness{false, now, now, c.Revision}
	case !before.well && well:
		g.nodes[node.UID] = wellness{true, now, before.illSince, c.Revision}
	}
	g.followMelting(w)
}

// followMelting takes note of when most nodes are ill, and for how long.
func (g *safetyState) followMelting(w *World) {
	ill, all := w.oracle.ill(0)
	switch melts := all >= 3 && ill*100 > healthThreshold*all; {
	case melts && g.melting.IsZero():
		g.melting = w.clock.at
	case !melts && !g.melting.IsZero():
		if w.clock.Since(g.melting) > wellKnown {
			g.melted = w.clock.at
		}
		g.melting = time.Time{}
	}
}

// ill counts the machines with a Node, and those of them whose Node is ill for longer than a time.
func (o *oracle) ill(longer time.Duration) (ill, all int) {
	for _, m := range o.machines {
		if m.Status.NodeRef == nil || !m.DeletionTimestamp.IsZero() ||
			m.Status.Phase != v1beta1.MachineRunning && m.Status.Phase != v1beta1.MachineUnhealthy {
			continue // One that has yet to become Ready does not count.
		}
		all++
		if node, known := o.world.safety.nodes[m.Status.NodeRef.UID]; known && !node.well &&
			o.world.clockSteadySince(node.since) >= longer {
			ill++
		}
	}
	return ill, all
}

// clockSteadySince is how long ago something was, but for the time that jumped: nobody could come to know anything in
// it.
func (w *World) clockSteadySince(t time.Time) time.Duration {
	d := w.clock.Since(t)
	for _, end := range w.safety.slept {
		if t.Before(end) {
			d -= jump
		}
	}
	return d
}

// mayRemediate is I6, and the rules of remediation: judged is each write of the manager to a Machine.
func (o *oracle) mayRemediate(c apiserver.Change) {
	w := o.world
	after, ok := c.New.(*v1beta1.Machine)
	if !ok {
		return
	}
	before, _ := c.Old.(*v1beta1.Machine)
	if c.Actor == Provider && before != nil {
		o.mayGiveUp(before, after)
	}
	if c.Actor != Manager {
		return
	}
	if before == nil {
		o.mayActInOutage(c, "made")
		return
	}
	if requested(after) && !requested(before) {
		o.mayActInOutage(c, "marked")
		o.mayMark(after)
	}
	ends := before.DeletionTimestamp.IsZero() && (c.Type == watch.Deleted || !after.DeletionTimestamp.IsZero())
	if !ends || !w.safety.steady {
		return
	}
	o.mayActInOutage(c, "deleted")
	owner := metav1.GetControllerOfNoCopy(before)
	if requested(before) || interrupted(before) || before.Status.Phase == v1beta1.MachineFailed || owner == nil ||
		o.sets[owner.UID] == nil {
		return
	}
	live := o.live(owner.UID) + o.extra(owner.UID)
	if _, least := o.sets[owner.UID].Within(o.world.control.Revision()); live <= least {
		o.breach("health", "%s deleted machine %s, which nobody found unhealthy: %d of %d are left", c.Actor, before.Name,
			live-1, least)
	}
}

// mayGiveUp judges that a machine takes too long to become a node: the time in which nobody could is not its fault.
func (o *oracle) mayGiveUp(before, after *v1beta1.Machine) {
	w := o.world
	if before.Status.FailureReason != "" || after.Status.FailureReason != v1beta1.FailureJoinClusterTimeout {
		return
	}
	began, _ := reachability.ExcludeOutages(w.safety.past[toTarget], after.CreationTimestamp.Time, time.Time{})
	if l := w.safety.links[toTarget]; l.down() && o.passBegan().Sub(l.cut) > noticed {
		o.breach("I6", "machine %s failed to join the target cluster, which is unreachable since %s", after.Name,
			l.cut.Sub(epoch))
	} else if age := w.clock.Since(began); age < after.Spec.Timeouts.CreationOrDefault()-2*time.Second {
		o.breach("I6", "machine %s failed to join within %s, outages left out", after.Name, age)
	}
}

func requested(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// markedInGoodFaith reports whether a machine is marked, and nobody who could take that back had seen that its Node
// is well again, or had time to since, as when it jumped. Where clocks differ nobody can show that it is well only
// now.
func (o *oracle) markedInGoodFaith(m *v1beta1.Machine) bool {
	if !requested(m) || m.Status.NodeRef == nil {
		return false
	}
	node, known := o.world.safety.nodes[m.Status.NodeRef.UID]
	clockSteady := o.world.clockSteadySince(node.since)
	asleep := clockSteady < wellKnown && clockSteady < o.world.clock.Since(node.since)
	differ := clockSteady < wellKnown && slices.ContainsFunc(o.world.processes, func(p *Process) bool {
		return p.clock.behind != 0
	})
	return known && node.well && (node.revision > o.seen()["Node"] || asleep || differ)
}

// mayActInOutage lets nothing be added, exchanged or remediated while a cluster is unreachable and everybody knows.
// What was decided before it may just have been known is under way at most for one pass, in which no time passes.
func (o *oracle) mayActInOutage(c apiserver.Change, what string) {
	for i, l := range o.world.safety.links {
		if l.down() && o.passBegan().Sub(l.cut) > noticed {
			o.breach("I6", "%s %s machine %s while %s is unreachable since %s", c.Actor, what, c.Key.Name,
				[...]string{"the control cluster", "the target cluster"}[i], l.cut.Sub(epoch))
		}
	}
}

// mayMark judges that a machine must be replaced since its Node is not well.
func (o *oracle) mayMark(m *v1beta1.Machine) {
	w := o.world
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	if c.Reason == v1beta1.ReasonRemediateAnnotation || m.Status.NodeRef == nil {
		return
	}
	if named := w.node(m.Status.NodeRef.Name); named == nil || named.UID != m.Status.NodeRef.UID {
		return // The Node is gone.
	}
	node, known := w.safety.nodes[m.Status.NodeRef.UID]
	if !known || node.well && node.since.Before(o.passBegan()) {
		o.breach("I6", "machine %s is marked as unhealthy, and its node is well since %s", m.Name, node.since.Sub(epoch))
		return
	}
	// No clock runs from before any of these, but that a leader who was not there then, or not for long enough to see
	// it, goes by what is written down of what has lasted for three timeouts.
	began := node.illSince
	for _, t := range []time.Time{w.safety.links[toControl].restored, w.safety.links[toTarget].restored, w.safety.melted,
		w.oracle.leading()} {
		if unseen := !t.After(w.oracle.leading().Add(wellKnown)); unseen &&
			w.clock.Since(node.illSince.Truncate(time.Second)) >= 3*healthTimeout {
			t = w.oracle.leading().Add(healthTimeout/10 - healthTimeout)
		}
		if t.After(began) {
			began = t
		}
	}
	// The API keeps times in seconds.
	if due := began.Truncate(time.Second).Add(healthTimeout); w.clock.at.Before(due) {
		o.breach("I6", "machine %s is marked as unhealthy %s after its clock began, at %s", m.Name, w.clock.Since(began),
			began.Sub(epoch))
	}
	ill, all := o.ill(wellKnown)
	if all >= 3 && ill*100 > healthThreshold*all {
		o.breach("I6", "machine %s is marked as unhealthy while the nodes of %d of %d are", m.Name, ill, all)
	}
	if most := o.mostUnhealthy(); ill > most {
		o.breach("health", "machine %s is marked as unhealthy although %d of %d are, more than %d", m.Name, ill, all, most)
	}
}

// leading is since when the manager's process that acts now does.
func (o *oracle) leading() time.Time {
	if f := o.world.top(); f != nil {
		return f.controller.process.began
	}
	return time.Time{}
}

// mostUnhealthy is how many machines may be unhealthy for any to be replaced, as far as anybody may think.
func (o *oracle) mostUnhealthy() int {
	all := 1
	for _, m := range o.machines {
		if m.DeletionTimestamp.IsZero() {
			all++
		}
	}
	limit := intstr.FromString(v1beta1.DefaultMaxUnhealthy)
	for _, object := range o.world.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineHealthCheck")) {
		limit = object.(*v1beta1.MachineHealthCheck).MaxUnhealthyOrDefault()
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, all, false)
	if err != nil {
		o.broken(fmt.Errorf("maxUnhealthy is %s: %w", limit.String(), err))
	}
	return max(n, 1)
}

// freezesMissing says what is still frozen.
func (w *World) freezesMissing() (missing []string) {
	for _, kind := range []string{"MachineDeployment", "MachineSet"} {
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
			if reason, frozen := o.GetLabels()[v1beta1.LabelFreeze]; frozen {
				missing = append(missing, fmt.Sprintf("%s %s is frozen: %s", kind, o.GetName(), reason))
			}
		}
	}
	return slices.Clip(missing)
}
