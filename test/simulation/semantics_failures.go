package simulation

import (
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// What clouds do with instances and parts after they have accepted them, and before.

// dooms reports whether the cloud gives up on the next instance: two of every four, so that one machine meets it once,
// twice in a row or not at all.
func (p *past) dooms(machine string) bool {
	// Nobody replaces what the cloud gave up on where the machine has no set.
	if !p.has(NoHost) && (!p.has(GivesUp) || !strings.HasPrefix(machine, deployment+"-")) {
		return false
	}
	p.accepted++
	return p.accepted%4 == 1 || p.accepted%4 == 2
}

// giveUp lets the instances fail whose time has come.
func (c *Cloud) giveUp(w *World) {
	for _, in := range c.instances {
		if !in.doomed || in.State != provider.StatePending || c.now().Before(in.born.Add(failsAfter)) {
			continue
		}
		in.State, in.StateMessage = provider.StateFailed, "no valid host was found"
		if c.past.has(NoHost) {
			in.StateCode = provider.ResourceExhausted
		}
		if c.past.gaveUp == nil {
			c.past.gaveUp = map[types.UID]time.Time{}
		}
		c.past.gaveUp[in.MachineUID] = in.born.Add(failsAfter)
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps
		w.logf("cloud: gives up on %s", in.ProviderID)
	}
}

// fail reports an instance failed that runs, because something else that was done to it failed. Drivers should not; the
// reasons that they give are as many as there are.
func (p *past) fail(in *instance, out *provider.Instance) {
	if p.has(ReportsFailed) && in.registered && in.MachineUID != "" && out.State == provider.StateRunning {
		out.State, out.StateMessage = provider.StateFailed, "the resize failed"
		if in.born.Unix()%2 == 0 {
			out.StateCode = provider.ResourceExhausted
		}
	}
}

// returned reports whether lists have an instance once more that is gone.
func (p *past) returned(g *ghost, now time.Time) bool {
	return p.has(ListsReturn) && !now.Before(g.gone.Add(returnsAfter)) && now.Before(g.gone.Add(returnsUntil))
}

// returnedOf returns the instance that a lookup by tag finds once more; nil if there is none.
func (c *Cloud) returnedOf(machine types.UID) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; g.MachineUID == machine && c.past.returned(g, c.now()) {
			return &g.instance
		}
	}
	return nil
}

// unattached are the parts that lists report although their instance is about to be made, or has just gone.
func (c *Cloud) unattached(cluster string) (all []provider.Leftover) {
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

// mayBeFailed judges that a machine is Failed: not at once where the cloud said that it had no capacity, and not while
// its node serves.
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
		o.breach("capacity", "machine %s is Failed, and the cloud said that it had no capacity for %s", m.Name, in.ProviderID)
	case w.cloud.past.has(ReportsFailed) && in.registered:
		o.breach("failed", "machine %s is Failed, and instance %s runs a node", m.Name, in.ProviderID)
	}
}

// soonest is how soon a process may ask for another instance after one failed for lack of capacity, with room for
// clocks that were set.
const soonest = time.Minute - time.Second

// mayAskAgain judges that a process asks for another instance of a machine after the cloud had no capacity for the one
// before: slowly, unless it began in between. With the token of the one before it asks for that.
func (o *oracle) mayAskAgain(p *Process, req provider.CreateRequest) {
	c := o.world.cloud
	failed, known := c.past.gaveUp[req.Machine.UID]
	if _, same := c.tokens[req.Token]; same || !known || !c.past.has(NoHost) || p.began.After(failed) || p.former {
		return
	}
	if waited := c.now().Sub(failed); waited < soonest {
		o.breach("capacity", "%s asks for another instance of machine %s %s after the cloud had no capacity for one", p.name,
			req.Machine.Name, waited)
	}
}
