package simulation

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// This file simulates clouds in which instances and their parts fail, before or after the cloud has accepted them.

// drawDoom decides whether the next instance will fail. Two of every four instances fail, so a machine may have up to
// two failing instances in succession.
func (p *past) drawDoom(machine string) bool {
	// No controller would replace a failed machine without a set, so its instance must not fail.
	if !p.has(NoHost) && (!p.has(GivesUp) || !strings.HasPrefix(machine, deployment+"-")) {
		return false
	}
	p.acceptedCreations++
	return p.acceptedCreations%4 == 1 || p.acceptedCreations%4 == 2
}

func (c *Cloud) giveUp(w *World) {
	for _, in := range c.instances {
		if !in.willFail || in.State != provider.StatePending || c.now().Before(in.born.Add(failsAfter)) {
			continue
		}
		in.State, in.StateMessage = provider.StateFailed, "no valid host was found"
		if c.past.has(NoHost) {
			in.StateCode = provider.ResourceExhausted
			c.noteRequest([]byte(in.spec), provider.Errorf(in.StateCode, "%s", in.StateMessage))
		}
		if c.past.failedAt == nil {
			c.past.failedAt = map[types.UID]time.Time{}
		}
		c.past.failedAt[in.MachineUID] = in.born.Add(failsAfter)
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps
		w.logf("cloud: gives up on %s", in.ProviderID)
		if in.CreateHandle != "" {
			if c.past.failedTasks == nil {
				c.past.failedTasks = map[string]provider.Code{}
			}
			c.past.failedTasks[in.CreateHandle] = cmp.Or(in.StateCode, provider.Internal)
		}
	}
	c.instances = slices.DeleteFunc(c.instances, func(in *instance) bool {
		_, failed := c.past.failedTasks[in.CreateHandle]
		return failed
	})
}

// fail reports a running instance as failed, because another operation on it has failed. The driver contract allows
// drivers to pass on such a wrong report. The text of the reason varies.
func (p *past) fail(in *instance, out *provider.Instance) {
	if p.has(ReportsFailed) && in.registered && in.MachineUID != "" && out.State == provider.StateRunning {
		out.State, out.StateMessage = provider.StateFailed, "the resize failed"
		if in.born.Unix()%2 == 0 {
			out.StateCode = provider.ResourceExhausted
		}
	}
}

func (p *past) reappears(g *ghost, now time.Time) bool {
	return p.has(ListsReturn) && !now.Before(g.gone.Add(returnsAfter)) && now.Before(g.gone.Add(returnsUntil))
}

func (c *Cloud) returnedOf(machine types.UID) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; g.MachineUID == machine && c.past.reappears(g, c.now()) {
			return &g.instance
		}
	}
	return nil
}

// unattachedParts returns the parts that lists show as unattached, because their instance was just created or
// deleted.
func (c *Cloud) unattachedParts(cluster string) (all []provider.Leftover) {
	if !c.past.has(PartsUnattached) {
		return nil
	}
	part := func(in *instance) {
		if in.ClusterID == cluster && in.MachineUID != "" {
			all = append(all, provider.Leftover{ID: "disk of " + in.ProviderID, LaunchTime: in.born, ClusterID: in.ClusterID,
				MachineUID: in.MachineUID, MachineKey: in.MachineKey})
		}
	}
	for _, in := range c.instances {
		if c.now().Before(in.born.Add(attachedAfter)) {
			part(in)
		}
	}
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; c.now().Before(g.gone.Add(partsFor)) {
			part(&g.instance)
		}
	}
	return all
}

// mayBeFailed checks when a machine becomes Failed. It must not fail immediately because of missing capacity, or while
// pods can run on its node.
func (o *oracle) mayBeFailed(before, m *v1beta1.Machine) {
	w := o.world
	if len(w.cloud.past.habits) == 0 || m.Status.FailureReason != v1beta1.FailureCreateError ||
		before != nil && before.Status.FailureReason == v1beta1.FailureCreateError {
		return
	}
	in := w.cloud.byID(m.Spec.ProviderID)
	switch {
	case in == nil:
	case w.cloud.past.has(NoHost) && in.State == provider.StateFailed:
		o.breach("capacity", "machine %s is Failed although the cloud only lacked capacity for %s", m.Name, in.ProviderID)
	case w.cloud.past.has(ReportsFailed) && in.registered:
		o.breach("failed", "machine %s is Failed although instance %s runs a node", m.Name, in.ProviderID)
	}
}

// minRetryDelay is the minimum time between a failure because of missing capacity and the next request. minRetryDelay
// has a margin for clocks that were set.
const minRetryDelay = time.Minute - time.Second

// mayAskAgain checks that a process waits after a failure because of missing capacity before it requests another
// instance. A process that started later does not know about the failure. A request with the token of the failed
// instance is a permitted retry. A machine of a placement tries another class at once, and the rule "placement
// requests" limits its requests.
func (o *oracle) mayAskAgain(p *Process, req provider.CreateRequest) {
	c := o.world.cloud
	failed, known := c.past.failedAt[req.Machine.UID]
	placed := slices.Contains(zones, placeOf(req.Class.Spec).Zone)
	if _, same := c.tokens[req.Token]; same || placed || !known || !c.past.has(NoHost) || p.began.After(failed) ||
		p.isFormer {
		return
	}
	if waited := c.now().Sub(failed); waited < minRetryDelay {
		o.breach("capacity", "%s requests another instance of machine %s only %s after the cloud lacked capacity", p.name,
			req.Machine.Name, waited)
	}
}
