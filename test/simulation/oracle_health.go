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
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

// gpuHealthy is a condition that another controller sets on Machines and that a health check names.
const gpuHealthy = "GPUHealthy"

// nodeHealth is the health of a Node, or the state of the condition gpuHealthy of a Machine.
type nodeHealth struct {
	healthy         bool
	since, illSince time.Time
	revision        int64
}

// healthKnownAfter is the longest time that processes with late caches take to learn the state of a Node.
const healthKnownAfter = longestBehind + time.Second

func (g *safetyState) follow(w *World, c apiserver.Change) {
	if g.nodes == nil {
		return
	}
	switch o := c.New.(type) {
	case *v1beta1.Machine:
		g.followHealth(w, o.UID, !meta.IsStatusConditionFalse(o.Status.Conditions, gpuHealthy), c.Revision)
	case *corev1.Node:
		g.followHealth(w, o.UID, c.Type != watch.Deleted && readiness(o) == corev1.ConditionTrue, c.Revision)
		g.followHealth(w, o.UID+networkSuffix, c.Type != watch.Deleted && networkWorks(o), c.Revision)
		g.followMeltdown(w)
	}
}

// networkSuffix is appended to the UID of a Node in the key of its network's health.
const networkSuffix = "/network"

func networkWorks(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == networkReady && c.Status == corev1.ConditionTrue
	})
}

// mayBeReady checks that the provider's process reports no machine as Ready whose Node is known not to meet a readiness
// gate. The check runs when a machine changes, and before the network works again, because a process that ignores the
// gates writes nothing.
func (o *oracle) mayBeReady(m *v1beta1.Machine) {
	if len(m.Spec.Node.ReadinessGates) == 0 || m.Status.NodeRef == nil ||
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady) {
		return
	}
	o.judged["gate"]++
	network, known := o.world.safety.nodes[m.Status.NodeRef.UID+networkSuffix]
	if known && !network.healthy && o.world.clockSteadySince(network.since) > healthKnownAfter {
		o.breach("gate", "machine %s is Ready, but the network of its node does not work since %s", m.Name,
			network.since.Sub(epoch))
	}
}

func (g *safetyState) followHealth(w *World, of uid, healthy bool, revision int64) {
	now := w.clock.at
	before, known := g.nodes[of]
	switch {
	case !known:
		g.nodes[of] = nodeHealth{healthy, now, now, revision}
	case before.healthy && !healthy:
		g.nodes[of] = nodeHealth{false, now, now, revision}
	case !before.healthy && healthy:
		g.nodes[of] = nodeHealth{true, now, before.illSince, revision}
	}
}

// healthOf returns the health of a machine with a Node. The machine is unhealthy if its Node is, or if another
// controller says so.
func (g *safetyState) healthOf(m *v1beta1.Machine) (h nodeHealth, known bool) {
	h, known = g.nodes[m.Status.NodeRef.UID]
	said, found := g.nodes[m.UID]
	switch {
	case !found || !known:
	case !said.healthy && (h.healthy || said.illSince.Before(h.illSince)),
		said.healthy && h.healthy && said.since.After(h.since):
		return said, true
	}
	return h, known
}

// followMeltdown records the beginning and the end of a meltdown, in which most nodes are unhealthy.
func (g *safetyState) followMeltdown(w *World) {
	if g.nodes == nil {
		return
	}
	ill, all := w.oracle.countUnhealthy(0, g.nodeHealth)
	switch meltdown := all >= 3 && ill*100 > healthThreshold*all; {
	case meltdown && g.meltdownSince.IsZero():
		g.meltdownSince = w.clock.at
	case !meltdown && !g.meltdownSince.IsZero():
		if w.clock.Since(g.meltdownSince) > healthKnownAfter {
			g.meltdownEnded = w.clock.at
		}
		g.meltdownSince = time.Time{}
	}
}

func (g *safetyState) nodeHealth(m *v1beta1.Machine) (nodeHealth, bool) {
	h, known := g.nodes[m.Status.NodeRef.UID]
	return h, known
}

// countUnhealthy returns the number of machines with a Node, and how many of them have been unhealthy for longer than a
// time.
func (o *oracle) countUnhealthy(longer time.Duration,
	health func(*v1beta1.Machine) (nodeHealth, bool)) (ill, all int) {
	for _, m := range o.machines {
		if m.Status.NodeRef == nil || !m.DeletionTimestamp.IsZero() ||
			m.Status.Phase != v1beta1.MachineRunning && m.Status.Phase != v1beta1.MachineUnhealthy {
			continue // A machine that was never Ready does not count.
		}
		all++
		if h, known := health(m); known && !h.healthy && o.world.clockSteadySince(h.since) >= longer {
			ill++
		}
	}
	return ill, all
}

// clockSteadySince returns how much time has passed since t. Time jumps do not count, because the processes are
// suspended during a jump.
func (w *World) clockSteadySince(t time.Time) time.Duration {
	d := w.clock.Since(t)
	for _, end := range w.safety.slept {
		if t.Before(end) {
			d -= jump
		}
	}
	return d
}

// mayRemediate checks I6 and the rules of remediation for each write of a Machine.
func (o *oracle) mayRemediate(c apiserver.Change) {
	w := o.world
	after, ok := c.New.(*v1beta1.Machine)
	if !ok {
		return
	}
	before, _ := c.Old.(*v1beta1.Machine)
	if c.Actor == Provider && before != nil {
		o.mayBeReady(after)
		o.mayFailToJoin(before, after)
	}
	if c.Actor != Manager {
		return
	}
	if before == nil {
		o.mayActInOutage(c, "created")
		return
	}
	o.mayReplaceAfterRemediation(before, after)
	if requested(after) && !requested(before) {
		o.mayActInOutage(c, "marked")
		o.mayMark(after)
	}
	ends := before.DeletionTimestamp.IsZero() && (c.Type == watch.Deleted || !after.DeletionTimestamp.IsZero())
	if !ends || !w.safety.isSteady {
		return
	}
	o.mayActInOutage(c, "deleted")
	owner := metav1.GetControllerOfNoCopy(before)
	if requested(before) && !leftToOperator(before) || interrupted(before) ||
		before.Status.Phase == v1beta1.MachineFailed || owner == nil ||
		o.sets[owner.UID] == nil {
		return
	}
	o.judged["health"]++
	live := o.liveMachines(owner.UID, o.seenRevisions()["Machine"])
	if _, least := o.sets[owner.UID].BoundsSince(o.world.control.Revision()); live <= least {
		o.breach("health", "%s deleted machine %s, which was not found unhealthy: %d of %d are left", c.Actor, before.Name,
			live-1, least)
	}
}

// mayFailToJoin checks that a machine fails to join only after its join timeout, which excludes outages of the target
// cluster.
func (o *oracle) mayFailToJoin(before, after *v1beta1.Machine) {
	w := o.world
	if before.Status.FailureReason != "" || after.Status.FailureReason != v1beta1.FailureJoinClusterTimeout {
		return
	}
	o.judged["join"]++
	if l := w.safety.links[toTarget]; l.down() && o.passBegan().Sub(l.lostAt) > noticedAfter {
		o.breach("I6", "machine %s failed to join the target cluster, which has been unreachable since %s", after.Name,
			l.lostAt.Sub(epoch))
	} else if age := invariants.WithoutOutages(w.safety.pastOutages[toTarget], after.CreationTimestamp.Time,
		w.clock.at); age < after.Spec.Timeouts.CreationOrDefault()-2*time.Second {
		o.breach("I6", "machine %s failed to join after only %s without outages", after.Name, age)
	}
}

func requested(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// markedForGPU reports whether another controller has found a machine broken, although the machine is Ready. Such a
// machine may be replaced like a machine that is not available.
func markedForGPU(m *v1beta1.Machine) bool {
	return requested(m) && meta.IsStatusConditionFalse(m.Status.Conditions, gpuHealthy)
}

// markedInGoodFaith reports whether a machine may still be marked as unhealthy although its Node has recovered, because
// the process could not know about the recovery. The process had not seen the change, the time has jumped since then,
// or the clocks differ.
func (o *oracle) markedInGoodFaith(m *v1beta1.Machine) bool {
	if !requested(m) || m.Status.NodeRef == nil {
		return false
	}
	node, known := o.world.safety.healthOf(m)
	clockSteady := o.world.clockSteadySince(node.since)
	asleep := clockSteady < healthKnownAfter && clockSteady < o.world.clock.Since(node.since)
	differ := clockSteady < healthKnownAfter && slices.ContainsFunc(o.world.processes, func(p *Process) bool {
		return p.clock.behind != 0
	})
	return known && node.healthy && (node.revision > o.seenRevisions()["Node"] || asleep || differ)
}

// mayActInOutage checks that no machine is added, replaced or remediated during an outage that all processes have
// noticed. A reconciliation that began before the processes noticed the outage may still act. No time passes during a
// reconciliation.
func (o *oracle) mayActInOutage(c apiserver.Change, what string) {
	for i, l := range o.world.safety.links {
		if l.down() && o.passBegan().Sub(l.lostAt) > noticedAfter {
			o.breach("I6", "%s %s machine %s while %s has been unreachable since %s", c.Actor, what, c.Key.Name,
				[...]string{"the control cluster", "the target cluster"}[i], l.lostAt.Sub(epoch))
		}
	}
}

func (o *oracle) mayMark(m *v1beta1.Machine) {
	w := o.world
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	if c.Reason == v1beta1.ReasonRemediateAnnotation || m.Status.NodeRef == nil {
		return
	}
	if named := w.node(m.Status.NodeRef.Name); named == nil || named.UID != m.Status.NodeRef.UID {
		return // The Node is gone.
	}
	if m.Status.Phase != v1beta1.MachineFailed { // A Failed machine is remediated at once.
		o.mayMarkForNode(m)
	}
	ill, all := o.countUnhealthy(healthKnownAfter, w.safety.nodeHealth)
	if all >= 3 && ill*100 > healthThreshold*all {
		o.breach("I6", "machine %s is marked as unhealthy while the nodes of %d of %d machines are unhealthy", m.Name,
			ill, all)
	}
	least, most := o.unhealthyLimits()
	if ill, all = o.countUnhealthy(healthKnownAfter, w.safety.healthOf); ill > most {
		o.breach("health", "machine %s is marked as unhealthy although %d of %d are unhealthy, want at most %d", m.Name, ill,
			all, most)
	}
	if known := o.knownUnhealthy(); known < least {
		o.breach("health", "machine %s is marked as unhealthy although only %d of %d are unhealthy, want at least %d", m.Name,
			known, all, least)
	}
}

// mayMarkForNode checks that a machine is marked only when its Node, or a condition of the machine, has been bad for
// the health timeout.
func (o *oracle) mayMarkForNode(m *v1beta1.Machine) {
	w := o.world
	o.judged["I6"]++
	node, known := w.safety.healthOf(m)
	if !known || node.healthy && node.since.Before(o.passBegan()) {
		o.breach("I6", "machine %s is marked as unhealthy, but it has been healthy since %s", m.Name,
			node.since.Sub(epoch))
		return
	}
	// The health timeout starts again at each of the times below. A leader that was not running then, or had only just
	// started, could not notice the event. If the Node has been unhealthy for three times the timeout, the leader may
	// use the recorded time.
	began := node.illSince
	for _, t := range []time.Time{w.safety.links[toControl].restoredAt, w.safety.links[toTarget].restoredAt,
		w.safety.meltdownEnded, w.oracle.leaderSince()} {
		if unseen := !t.After(w.oracle.leaderSince().Add(healthKnownAfter)); unseen &&
			w.clock.Since(node.illSince.Truncate(time.Second)) >= 3*healthTimeout {
			t = w.oracle.leaderSince().Add(healthTimeout/10 - healthTimeout)
		}
		if t.After(began) {
			began = t
		}
	}
	// API times are whole seconds.
	if due := began.Truncate(time.Second).Add(healthTimeout); w.clock.at.Before(due) {
		o.breach("I6", "machine %s is marked as unhealthy only %s after its health timeout began, at %s", m.Name,
			w.clock.Since(began), began.Sub(epoch))
	}
}

// knownUnhealthy returns the number of machines that a process may count as unhealthy. This includes machines that
// recovered or were deleted so recently that the process may not know it.
func (o *oracle) knownUnhealthy() int {
	recent := func(t time.Time) bool { return o.world.clockSteadySince(t) < healthKnownAfter }
	n := 0
	for _, m := range o.machines {
		if m.Status.NodeRef == nil || !m.DeletionTimestamp.IsZero() && !recent(m.DeletionTimestamp.Time) {
			continue
		}
		node, known := o.world.safety.healthOf(m)
		if m.Status.Phase == v1beta1.MachineFailed || !known || !node.healthy || recent(node.since) {
			n++
		}
	}
	return n
}

func (w *World) healthChecks() (out []*v1beta1.MachineHealthCheck) {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineHealthCheck")) {
		out = append(out, o.(*v1beta1.MachineHealthCheck))
	}
	return out
}

func (o *oracle) leaderSince() time.Time {
	if f := o.world.top(); f != nil {
		return f.controller.process.began
	}
	return time.Time{}
}

// unhealthyLimits returns the lowest and the highest number of unhealthy machines at which machines are replaced.
func (o *oracle) unhealthyLimits() (least, most int) {
	all := 1
	for _, m := range o.machines {
		if m.DeletionTimestamp.IsZero() {
			all++
		}
	}
	limit := intstr.FromString(v1beta1.DefaultMaxUnhealthy)
	for _, check := range o.world.healthChecks() {
		if check.Spec.UnhealthyRange != "" {
			if _, err := fmt.Sscanf(check.Spec.UnhealthyRange, "[%d-%d]", &least, &most); err != nil {
				o.broken(fmt.Errorf("unhealthyRange %s is invalid: %w", check.Spec.UnhealthyRange, err))
			}
			return least, most
		}
		limit = check.MaxUnhealthyOrDefault()
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(&limit, all, false)
	if err != nil {
		o.broken(fmt.Errorf("maxUnhealthy %s is invalid: %w", limit.String(), err))
	}
	return 0, max(n, 1)
}

func (w *World) frozenObjects() (missing []string) {
	for _, kind := range []string{"MachineDeployment", "MachineSet"} {
		for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind(kind)) {
			if reason, frozen := o.GetLabels()[v1beta1.LabelFreeze]; frozen {
				missing = append(missing, fmt.Sprintf("%s %s is frozen: %s", kind, o.GetName(), reason))
			}
		}
	}
	return slices.Clip(missing)
}
