package migration

import (
	"context"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
	"machinist.dev/machinist/pkg/provider"
)

// This file finds the instance of each old machine by the old system's tags and names.

type candidate struct {
	conversion
	object    *v1beta1.Machine // as converted, without the additions of its set
	class     *class
	set       *set // nil for a machine without a set
	instances []locatedInstance
}

// candidate returns an old machine with its set and class. ok is false if the machine cannot be copied.
func (p *planner) candidate(c conversion) (m candidate, ok bool) {
	object, ok := c.Object.(*v1beta1.Machine)
	if !ok {
		return m, false // The machine stays with the old system, or the conversion has reported a Blocker.
	}
	p.plan.oldMachines++
	m = candidate{conversion: c, object: object}
	if owner := c.Machine.Owner; owner != "" {
		if m.set = p.sets[owner]; m.set == nil {
			p.blockf(CodeOwnerMissing, c.displayName, "metadata.ownerReferences", "The set of this machine does not exist, "+
				"or could not be converted. Delete the machine, or remove the reference.")
			return m, false
		}
	}
	if m.set != nil && c.Class != nil && p.setOf[c.Machine.Owner].SameInstances(c.Class) {
		m.class = m.set.class
	} else {
		m.class = p.classOf(c)
	}
	m.Class = nil
	return m, m.class != nil
}

// locate lists the instances of each class and assigns them to the machines. Only the provider IDs of other instances
// are kept, to save memory.
func (p *planner) locate(ctx context.Context, machines []candidate) error {
	of := map[*class][]*candidate{}
	for i := range machines {
		of[machines[i].class] = append(of[machines[i].class], &machines[i])
	}
	for _, c := range p.plan.classes {
		all, err := p.findInstances(ctx, c)
		if err != nil {
			return err
		}
		index := indexOf(all)
		for _, m := range of[c] {
			m.instances = index.instancesOf(m)
		}
		for i := range p.stayingMachines {
			m := &p.stayingMachines[i]
			m.instances = append(m.instances, index.instancesOf(m)...)
		}
		for i := range all {
			p.seen[all[i].Instance.ProviderID] = true
		}
	}
	return nil
}

// matchInstances adds each machine with exactly one instance to the plan. It returns the facts about one instance of
// each class.
func (p *planner) matchInstances(machines []candidate) map[*class][]byte {
	facts := map[*class][]byte{}
	p.spellNodeIDs(machines)
	p.checkTarget(machines)
	taken := map[string]string{} // provider ID → machine
	for _, m := range p.stayingMachines {
		for _, in := range m.instances {
			taken[in.ProviderID] = m.displayName
		}
	}
	for _, m := range machines {
		if len(m.instances) > 1 {
			p.blockf(CodeSeveralInstances, m.displayName, "", "The cloud shows %d instances of this machine: %s. Delete "+
				"those that do not belong to it.", len(m.instances), idsOf(m.instances))
			continue
		}
		if len(m.instances) == 0 {
			p.reportWithoutInstance(m)
			continue
		}
		in := m.instances[0]
		if first, claimed := taken[in.ProviderID]; claimed {
			p.blockf(CodeInstanceClaimed, m.displayName, "", "Instance %[2]s of this machine also belongs to %[1]s. "+
				"Delete the old object that is not in use.", first,
				in.ProviderID)
			continue
		}
		taken[in.ProviderID] = m.displayName
		if facts[m.class] == nil {
			facts[m.class] = in.facts
		}
		p.machine(m, in)
	}
	p.reportUnnamed(taken)
	return facts
}

// checkTarget reports old machines whose Nodes do not exist, because such machines are replaced after the commit. If
// the target cluster has no Node of any old machine, it is the wrong cluster.
func (p *planner) checkTarget(machines []candidate) {
	if p.nodes.noCluster {
		return
	}
	exists := func(m candidate) bool {
		return p.nodes.named(m.Machine.NodeName) != nil || slices.ContainsFunc(m.instances, func(in locatedInstance) bool {
			return len(p.nodes.byProviderID[p.nodeProviderID(m.class, in)]) > 0
		})
	}
	var missing []candidate
	for _, m := range machines {
		if m.Machine.NodeName != "" && len(m.instances) > 0 && !m.Machine.Deleting && !exists(m) {
			missing = append(missing, m)
		}
	}
	if len(missing) > 0 && !slices.ContainsFunc(machines, exists) {
		p.blockf(CodeWrongTarget, "Migration/"+p.migration.Name, "", "The target cluster does not have the Nodes of %s, such "+
			"as Node %s of %s. Configure the cluster that the old machines joined as target cluster of the manager, the "+
			"provider and the migrator, with the value target.kubeconfigSecret.name of the charts. If the Nodes no longer "+
			"exist, delete or exclude the old machines.", wording.Count(len(missing), "old machine"),
			missing[0].Machine.NodeName, missing[0].displayName)
		return
	}
	for _, m := range missing {
		p.plan.findings.addf(provider.FindingLoss, CodeNodeMissing, m.displayName, "", "The target cluster does not have "+
			"the Node %s of this machine. Unless the Node appears, the machine is replaced when its creation timeout has "+
			"passed.", m.Machine.NodeName)
	}
}

func (p *planner) reportWithoutInstance(m candidate) {
	if !m.class.searched {
		return // findInstances has reported why the instances are unknown.
	}
	if node := p.nodes.named(m.Machine.NodeName); node != nil && m.Machine.NodeName != "" {
		p.blockf(CodeInstanceNotFound, m.displayName, "", "The Node %s of this machine exists, but the cloud shows no "+
			"instance of the machine in the account of class %s. Correct the credentials, or delete the Node if the "+
			"instance is gone.", node.Name, m.class.name)
		return
	}
	what := "This machine has no instance. Its set creates another machine when the migration is completed."
	switch {
	case m.Machine.Deleting:
		what = "This machine is being deleted and has no instance."
	case m.set == nil:
		what = "This machine has no instance, and no set that would create another machine."
	}
	p.plan.findings.addf(provider.FindingNote, CodeNoInstance, m.displayName, "", "%s", what)
}

func (p *planner) reportUnnamed(taken map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(p.seen)) {
		if taken[id] == "" {
			p.plan.findings.addf(provider.FindingNote, CodeUnnamedInstance, "Instance/"+id, "",
				"No old machine has this instance. The migration does not touch it.")
		}
	}
}

func (p *planner) machine(m candidate, in locatedInstance) {
	switch {
	case in.state == provider.StateTerminating:
		p.blockf(CodeInFlight, m.displayName, "", "The instance %s of this machine is being deleted. Wait until it is "+
			"gone.", in.ProviderID)
		return
	case m.Machine.Updating:
		p.blockf(CodeInFlight, m.displayName, "", "The old system is updating this machine in place. Wait until the "+
			"update is done.")
		return
	}
	in.nodeProviderID = p.nodeProviderID(m.class, in)
	if problem := p.nodes.mismatch(in.nodeProviderID, m.Machine.NodeName); problem != "" {
		p.blockf(CodeNodeMismatch, m.displayName, "", "%s", problem+p.nodeIDHelp(m, in))
		return
	}
	if in.notAdoptable != "" {
		p.blockf(CodeNotAdoptable, m.displayName, "", "The provider cannot adopt the instance %s: %s.", in.ProviderID,
			in.notAdoptable)
	}
	if other := p.own.byProviderID[in.ProviderID]; other != nil && oldUID(other) != m.old.GetUID() {
		p.blockf(CodeInstanceClaimed, m.displayName, "", "Machine %s already has the instance %s. Delete the old object "+
			"or the Machine, whichever is not in use. If two Migrations have this instance, abort one of them.",
			client.ObjectKeyFromObject(other), in.ProviderID)
	}
	if other := p.own.machines[m.object.Name]; other != nil && oldUID(other) != m.old.GetUID() {
		m.object.Name = alternativeName(m.object.Name, m.old.GetUID())
	}
	if m.set != nil {
		m.set.machines++
	}
	in.facts, m.instances = nil, nil // Only the class needed these fields.
	p.plan.machines = append(p.plan.machines, &machine{candidate: m, instance: in})
}

// locatedInstance holds the facts that the plan needs about an instance of the old system.
type locatedInstance struct {
	ProviderID string
	// nodeProviderID is the provider ID of the instance's Node.
	nodeProviderID   string
	nodeName, region string
	Collected        bool
	// notAdoptable is why the provider cannot adopt the instance, or "".
	notAdoptable string
	state        provider.InstanceState
	facts        []byte
}

// locatedIndex finds instances of one class by the UID, name or provider ID of their machine.
type locatedIndex struct {
	byUID, byName map[string][]locatedInstance
	byID          map[string]locatedInstance
}

func indexOf(all []provider.LocatedInstance) locatedIndex {
	index := locatedIndex{byUID: map[string][]locatedInstance{}, byName: map[string][]locatedInstance{},
		byID: map[string]locatedInstance{}}
	for i := range all {
		found := &all[i]
		in := locatedInstance{ProviderID: found.Instance.ProviderID, Collected: found.IsCollected,
			state:        found.Instance.State,
			notAdoptable: found.NotAdoptable, facts: found.Facts, nodeName: found.Instance.NodeName,
			region: found.Instance.Region}
		index.byID[in.ProviderID] = in
		switch {
		case found.MachineUID != "":
			index.byUID[string(found.MachineUID)] = append(index.byUID[string(found.MachineUID)], in)
		case found.Machine != "":
			index.byName[found.Machine] = append(index.byName[found.Machine], in)
		}
	}
	return index
}

// instancesOf returns the instances of a machine: by the UID in a tag, else by the provider ID in the old object, else
// by the name.
func (x locatedIndex) instancesOf(m *candidate) []locatedInstance {
	if found := x.byUID[string(m.old.GetUID())]; len(found) > 0 {
		return found
	}
	if in, found := x.byID[m.Machine.ProviderID]; found {
		return []locatedInstance{in}
	}
	return x.byName[m.old.GetName()]
}

func idsOf(all []locatedInstance) string {
	var ids []string
	for _, in := range all {
		ids = append(ids, in.ProviderID)
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}
