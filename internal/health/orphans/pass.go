package orphans

import (
	"context"
	"slices"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// pass checks all instances once. The next pass needs the observations of the returned plan.
func (c *Collector) pass(ctx context.Context, now time.Time, before Observations) Plan {
	known, err := c.readCache(ctx)
	if err != nil {
		c.log(ctx).Error(err, "Cannot look for orphans: the cache cannot be read")
		return Plan{}
	}
	forced, err := c.forceDeleted(ctx)
	if err != nil {
		c.log(ctx).Error(err, "Cannot look for orphans: the record of force-deleted Machines cannot be read")
		return Plan{}
	}
	state := State{Rules: c.Rules, Now: now, ProviderIDs: known.providerIDs, PreviousObservations: before,
		PreviousInstances: c.state.instances,
		ForceDeleted:      forced}
	var lists []provider.ListPage
	var listed []*scope
	listErrors := map[string]string{}
	scopesKnown, unlisted := c.scopesOf(ctx, known)
	for _, s := range scopesKnown {
		found, err := c.listInstances(ctx, s)
		if err != nil {
			source := nameOf(s.source)
			if listErrors[source] = err.Error(); listErrors[source] != c.state.listErrors[source] {
				c.log(ctx).Error(err, "Cannot list the instances of a scope, so its orphans are not collected", "source", source)
			}
			unlisted = append(unlisted, unlistedFor(s, err)...)
			continue
		}
		listed, lists = append(listed, s), append(lists, found)
	}
	c.state.listErrors = listErrors
	scopes := state.addLists(listed, lists)
	c.checkMissingInstances(ctx, listed, scopes)
	c.checkSwitchedInstances(ctx, known, state.Instances)
	if state.needsMachineList() {
		if state.LiveMachines, state.OtherShardIDs, err = c.listMachines(ctx); err != nil {
			c.log(ctx).Error(err, "Not removing orphans: the Machines cannot be listed")
		}
	}
	if err := c.confirmLive(ctx, &state, scopes, unlisted); err != nil {
		state.LiveMachines = nil
		c.log(ctx).Error(err, "Not removing orphans: their Nodes or the confirmations of their removal cannot be read")
	}
	// The lists may have taken long, so read the current state.
	state.StableSince, _ = c.Reachability.StableSince()
	state.ListTime = c.Clock.Now()
	plan := Decide(state)
	c.carryOut(ctx, known, plan, scopes, state.ConfirmedIDs)
	c.reportBlocked(ctx, &state, plan, listed, scopes)
	if err := c.deleteNodes(ctx, known, listed, scopes); err != nil {
		c.log(ctx).Error(err, "Cannot delete the Nodes of removed orphans")
	}
	if err := c.deleteLostNodes(ctx, known, &state, listed, scopes); err != nil {
		c.log(ctx).Error(err, "Cannot delete the Nodes of lost Machines whose instances are gone")
	}
	page := pageOf(plan, scopes, unlisted)
	var finished map[string]bool
	finished, c.state.unseenMachines = state.finishForceDeleted(listed, c.state.unseenMachines)
	page.DropForceDeleted(finished)
	c.record(ctx, now, page)
	return plan
}

// addLists adds the listed instances and leftovers to the State without repetitions. The result maps the ID of each
// decision to the scope that lists the instance or the leftovers. If an instance is in several scopes, addLists prefers
// a scope with a class in the namespace of the Machine. The credentials of the scope are used to read and remove the
// instance.
func (s *State) addLists(listed []*scope, lists []provider.ListPage) map[string]*scope {
	scopes, parts := map[string]*scope{}, map[string]bool{}
	for _, own := range []bool{true, false} {
		for i, at := range listed {
			for _, in := range lists[i].Instances {
				if at.hasClassIn(namespaceOf(&in)) == own && scopes[in.ProviderID] == nil {
					scopes[in.ProviderID] = at
					s.Instances = append(s.Instances, in)
				}
			}
			found := slices.DeleteFunc(slices.Clone(lists[i].Leftovers), func(l provider.Leftover) bool {
				return at.hasClassIn(namespaceIn(l.MachineKey)) != own
			})
			for _, leftovers := range groupLeftovers(nameOf(at.source), found, parts) {
				if scopes[leftovers.ID] == nil {
					scopes[leftovers.ID] = at
					s.Leftovers = append(s.Leftovers, leftovers)
				}
			}
		}
	}
	return scopes
}

func (c *Collector) checkMissingInstances(ctx context.Context, listed []*scope, found map[string]*scope) {
	for _, s := range listed {
		for _, m := range s.machines {
			if found[m.Spec.ProviderID] == nil {
				c.log(ctx).Info("The instance of a Machine is missing in the provider's lists: checking the instance", "machine",
					nameOf(m), "providerID", m.Spec.ProviderID)
				c.CheckInstance(m)
			}
		}
	}
}

// checkSwitchedInstances makes the controllers of Machines read the instances that were switched off or on since they
// were last read.
func (c *Collector) checkSwitchedInstances(ctx context.Context, known *snapshot, instances []provider.Instance) {
	for i := range instances {
		in := &instances[i]
		m := known.machines[in.MachineUID]
		if m == nil || m.Spec.ProviderID != in.ProviderID || !machinestate.IsLive(m) || m.Status.Instance == nil {
			continue
		}
		was, is := m.Status.Instance.State, v1beta1.InstanceState(in.State)
		if m.Spec.PowerState == v1beta1.PowerStopped && m.Status.NodeRef != nil && was == v1beta1.InstanceStopped {
			continue // The list of some providers shows stopped instances as running. The Node shows whether one runs.
		}
		if was == v1beta1.InstanceRunning && is == v1beta1.InstanceStopped ||
			was == v1beta1.InstanceStopped && is == v1beta1.InstanceRunning {
			c.log(ctx).Info("The state of an instance has changed: checking the instance", "machine", nameOf(m),
				"providerID", in.ProviderID, "before", was, "now", is)
			c.CheckInstance(m)
		}
	}
}

func (c *Collector) carryOut(ctx context.Context, known *snapshot, plan Plan, scopes map[string]*scope,
	confirmed map[string]bool) {
	var batch eventBatch
	for i := range plan.Decisions {
		d := &plan.Decisions[i]
		in := &d.Instance
		observation := plan.Observations[d.ID]
		at := scopes[d.ID]
		source := at.sourceOf(namespaceOf(in))
		log := c.log(ctx).WithValues("providerID", in.ProviderID, "machine", in.MachineKey, "uid", in.MachineUID, "launched",
			in.LaunchTime)
		if len(d.Parts) > 0 {
			log = log.WithValues("parts", d.Parts)
		}
		switch outcome := d.Outcome; outcome {
		case OutcomeDelete:
			if !c.stable() || ctx.Err() != nil {
				log.Info("Not removing an orphan now: a cluster does not answer, or this process stops leading")
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
				log.Error(err, "Cannot remove an orphan")
				c.Metrics.count(actionFailed)
				batch.add(source, reasonFailed, d.name()+": "+string(provider.CodeOf(err)))
			case removed && !observation.IsReported:
				log.Info("Removed an orphan")
				c.Metrics.count(actionDeleted)
				batch.add(source, reasonDeleted, d.name())
				observation.IsReported = true
			}
			plan.Observations[d.ID] = observation
		case OutcomeMostOrphaned, OutcomeNodeReady:
			if err := c.endDrain(ctx, in, &observation); err != nil {
				log.Error(err, "Cannot uncordon the Node of an orphan")
			}
			if !observation.IsWarned {
				log.Info("An orphan is not removed until an administrator confirms its removal", "reason", blockedReasons[outcome])
				batch.add(source, reasonBlocked, d.name())
				observation.IsWarned = true
			}
			plan.Observations[d.ID] = observation
		case OutcomeReport, OutcomeDuplicate:
			if observation.IsReported {
				continue
			}
			if outcome == OutcomeReport {
				log.Info("Found an orphan, and left it in place because of --orphan-action=report")
				c.Metrics.count(actionReported)
				batch.add(source, reasonFound, d.name())
			} else {
				log.Info("Found a second instance of a Machine, and left it in place", "recorded", known.providerIDs[in.MachineUID])
				c.Metrics.count(actionDuplicate)
				batch.add(known.machines[in.MachineUID], reasonDuplicate, in.ProviderID)
			}
			observation.IsReported = true
			plan.Observations[d.ID] = observation
		case OutcomeOwned:
		default:
			log.V(1).Info("Left an instance in place", "outcome", outcome)
		}
	}
	batch.report(c.Recorder)
}

// remove requests the deletion of an orphan, and reports whether it has done so. If the removal is confirmed and the
// Node is Ready, it first drains the Node. Immediately before the deletion, a read from the cloud must return the same
// instance.
func (c *Collector) remove(ctx context.Context, s *scope, planned *provider.Instance, observation *Observation,
	confirmed bool) (bool, error) {
	if drained, err := c.nodeAllowsRemoval(ctx, planned, observation, confirmed); err != nil || !drained {
		return false, err
	}
	machine := machineOf(planned)
	read, err := c.Cloud.Get(ctx, provider.GetRequest{
		Machine: machine, Class: s.class, ClusterID: c.Rules.ClusterID, ProviderID: planned.ProviderID, Scope: planned.Scope,
	})
	switch {
	case provider.IsNotFound(err):
		return false, nil // The instance is gone, or a stale read missed it and the next list shows it.
	case err != nil:
		return false, err
	case !Confirm(c.Rules, planned, read):
		c.log(ctx).Info("Not removing an orphan: it changed since it was listed", "providerID", planned.ProviderID)
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
