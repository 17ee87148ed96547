package orphans

import (
	"context"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// pass checks all instances once, and returns what it saw for the next one.
func (c *Collector) pass(ctx context.Context, now time.Time, before Observations) Plan {
	known, err := c.observe(ctx)
	if err != nil {
		c.log(ctx).Error(err, "Orphaned instances are not looked for")
		return Plan{}
	}
	forced, err := c.forceDeleted(ctx)
	if err != nil {
		c.log(ctx).Error(err, "Orphaned instances are not looked for: it is not known which Machines were deleted by force")
		return Plan{}
	}
	state := State{Rules: c.Rules, Now: now, Recorded: known.recorded, Before: before, InstancesBefore: c.state.instances,
		ForceDeleted: forced}
	// By the IDs of decisions: the scope in which an instance was found is the one with which it is read again and
	// removed.
	scopes := map[string]*scope{}
	parts := map[string]bool{}
	var listed []*scope
	scopesKnown, unlisted := c.scopesOf(ctx, known)
	for _, s := range scopesKnown {
		found, err := c.listInstances(ctx, s)
		if err != nil {
			c.log(ctx).Error(err, "The instances of a scope are left alone: they cannot be listed", "source", nameOf(s.source))
			unlisted = append(unlisted, unlistedFor(s, err)...)
			continue
		}
		listed = append(listed, s)
		for _, in := range found.Instances {
			if scopes[in.ProviderID] == nil {
				scopes[in.ProviderID] = s
				state.Instances = append(state.Instances, in)
			}
		}
		for _, leftovers := range group(nameOf(s.source), found.Leftovers, parts) {
			if scopes[leftovers.ID] == nil {
				scopes[leftovers.ID] = s
				state.Leftovers = append(state.Leftovers, leftovers)
			}
		}
	}
	c.suspect(ctx, listed, scopes)
	if state.candidates() {
		if state.Live, state.Elsewhere, err = c.listMachines(ctx); err != nil {
			c.log(ctx).Error(err, "Orphaned instances are left alone: it is not known which Machines there are")
		}
	}
	if err := c.confirmLive(ctx, &state, scopes); err != nil {
		state.Live = nil
		c.log(ctx).Error(err, "Orphaned instances are left alone: it is not known which may be removed")
	}
	// Listing may have taken long: it is what is so now that counts.
	state.Stable, _ = c.Reach.StableSince()
	state.Listed = c.Clock.Now()
	plan := Decide(state)
	c.carryOut(ctx, known, plan, scopes, state.Confirmed)
	c.reportBlocked(ctx, &state, plan, listed, scopes)
	if err := c.deleteNodes(ctx, known, listed, scopes); err != nil {
		c.log(ctx).Error(err, "Cannot delete the Nodes of instances that were removed")
	}
	if err := c.deleteLostNodes(ctx, known, &state, listed, scopes); err != nil {
		c.log(ctx).Error(err, "Cannot delete the Nodes of instances that are gone")
	}
	page := pageOf(plan, scopes, unlisted)
	var settled map[string]bool
	settled, c.state.unseen = state.settle(listed, c.state.unseen)
	page.Settle(settled)
	c.keep(ctx, now, page)
	return plan
}

// suspect triggers the Machines whose instances are missing in the list of their scope and in all other lists: an
// instance that another scope lists still exists.
func (c *Collector) suspect(ctx context.Context, listed []*scope, found map[string]*scope) {
	for _, s := range listed {
		for _, m := range s.machines {
			if found[m.Spec.ProviderID] == nil {
				c.log(ctx).Info("The provider's list lacks the instance of a Machine, which is to ask for it", "machine", nameOf(m),
					"providerID", m.Spec.ProviderID)
				c.CheckInstance(m)
			}
		}
	}
}

// carryOut does what was decided, and notes it in the plan's observations.
func (c *Collector) carryOut(ctx context.Context, known *fleet, plan Plan, scopes map[string]*scope,
	confirmed map[string]bool) {
	var changes changes
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		in := &d.Instance
		observation := plan.Observations[d.ID]
		at := scopes[d.ID]
		log := c.log(ctx).WithValues("providerID", in.ProviderID, "machine", in.MachineKey, "uid", in.MachineUID, "launched",
			in.LaunchTime)
		if len(d.Parts) > 0 {
			log = log.WithValues("parts", d.Parts)
		}
		switch outcome := d.Outcome; outcome {
		case Delete:
			if !c.stable() || ctx.Err() != nil {
				log.Info("An orphaned instance is left alone for now")
				continue
			}
			observation.Attempts++
			removed, err := false, error(nil)
			if len(d.Parts) > 0 {
				removed, err = c.removeLeftovers(ctx, at, d)
			} else {
				removed, err = c.remove(ctx, at, in, &observation, confirmed[d.ID])
			}
			switch {
			case err != nil:
				log.Error(err, "Cannot remove an orphaned instance")
				c.Metrics.count(actionFailed)
				changes.add(at.source, reasonFailed, d.name()+": "+string(provider.CodeOf(err)))
			case removed && !observation.Reported:
				log.Info("Removed an orphaned instance: it has no Machine")
				c.Metrics.count(actionDeleted)
				changes.add(at.source, reasonDeleted, d.name())
				observation.Reported = true
			}
			plan.Observations[d.ID] = observation
		case MostOrphaned, NodeReady:
			if err := c.endDrain(ctx, in, &observation); err != nil {
				log.Error(err, "Cannot put the Node of an instance without a Machine back into service")
			}
			if !observation.Warned {
				log.Info("An instance without a Machine is not removed until a person confirms", "reason", blockedReasons[outcome])
				changes.add(at.source, reasonBlocked, d.name())
				observation.Warned = true
			}
			plan.Observations[d.ID] = observation
		case Report, Duplicate:
			if observation.Reported {
				continue
			}
			if outcome == Report {
				log.Info("Found an orphaned instance, which is only reported: it has no Machine")
				c.Metrics.count(actionReported)
				changes.add(at.source, reasonFound, d.name())
			} else {
				log.Info("Found an instance of a Machine that has another one; it is left alone", "recorded",
					known.recorded[in.MachineUID])
				c.Metrics.count(actionDuplicate)
				changes.add(known.machines[in.MachineUID], reasonDuplicate, in.ProviderID)
			}
			observation.Reported = true
			plan.Observations[d.ID] = observation
		case Owned:
		default:
			log.V(1).Info("An instance is left alone", "outcome", outcome)
		}
	}
	changes.report(c.Recorder)
}

// remove empties the Node of an instance that a person lets go, reads the instance again and, if it is what it was,
// begins or goes on to remove it. It reports whether it did.
func (c *Collector) remove(ctx context.Context, s *scope, planned *provider.Instance, observation *Observation,
	confirmed bool) (bool, error) {
	if drained, err := c.nodeMayGo(ctx, planned, observation, confirmed); err != nil || !drained {
		return false, err
	}
	machine := machineOf(planned)
	read, err := c.Cloud.Get(ctx, provider.GetRequest{
		Machine: machine, Class: s.class, ClusterID: c.Rules.ClusterID, ProviderID: planned.ProviderID, Scope: planned.Scope,
	})
	switch {
	case provider.IsNotFound(err):
		return false, nil // It went by itself; or this read is behind, and the next list shows it again.
	case err != nil:
		return false, err
	case !Confirm(c.Rules, planned, read):
		c.log(ctx).Info("An instance is not what it was in the list, and is left alone", "providerID", planned.ProviderID)
		return false, nil
	}
	if err := c.markNodes(ctx, planned, nameOf(s.source)); err != nil {
		return false, err
	}
	_, err = c.Cloud.Delete(ctx, provider.DeleteRequest{
		Machine: machine, Class: s.class, ClusterID: c.Rules.ClusterID, ProviderID: planned.ProviderID, Scope: read.Scope,
	})
	if err == nil {
		c.forgetDrain(planned)
	}
	return err == nil, err
}
