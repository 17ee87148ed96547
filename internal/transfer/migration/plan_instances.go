package migration

import (
	"context"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Which instance each old machine has, by what the old system left at the cloud.

// candidate is an old machine of which it is not known yet whether it has an instance.
type candidate struct {
	conversion
	object *v1beta1.Machine // as converted, alone
	class  *class
	set    *set // nil where none owns it
	// instances are those that the cloud shows of it.
	instances []located
}

// candidate looks for the set and the class of an old machine. It is not ok if nothing can be made of it.
func (p *planner) candidate(c conversion) (m candidate, ok bool) {
	object, ok := c.Object.(*v1beta1.Machine)
	if !ok {
		return m, false // It stays behind, or is blocked; the conversion said so.
	}
	p.plan.old++
	m = candidate{conversion: c, object: object}
	if owner := c.Machine.Owner; owner != "" {
		if m.set = p.sets[owner]; m.set == nil {
			p.blockf(CodeOwnerMissing, c.as, "metadata.ownerReferences", "Its set does not exist, or could not be converted. "+
				"Delete the machine, or remove the reference.")
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

// locate asks the cloud for the instances of each class, and keeps those of its machines. Of the others, which may be
// as many for each class, it keeps the provider IDs.
func (p *planner) locate(ctx context.Context, machines []candidate) error {
	of := map[*class][]*candidate{}
	for i := range machines {
		of[machines[i].class] = append(of[machines[i].class], &machines[i])
	}
	for _, c := range p.plan.classes {
		all, err := p.describe(ctx, c)
		if err != nil {
			return err
		}
		index := indexOf(all)
		for _, m := range of[c] {
			m.instances = index.of(m)
		}
		for i := range all {
			p.seen[all[i].Instance.ProviderID] = true
		}
	}
	return nil
}

// match finds the instance and the Node of each machine, and returns for each class the facts of one of its instances.
func (p *planner) match(machines []candidate) map[*class][]byte {
	facts := map[*class][]byte{}
	taken := map[string]string{} // provider ID → machine
	for _, m := range machines {
		if len(m.instances) > 1 {
			p.blockf(CodeSeveralInstances, m.as, "", "The cloud shows %d instances of it: %s. Remove those that are not its own.",
				len(m.instances), idsOf(m.instances))
			continue
		}
		if len(m.instances) == 0 {
			p.without(m)
			continue
		}
		in := m.instances[0]
		if first, claimed := taken[in.ProviderID]; claimed {
			p.blockf(CodeInstanceClaimed, m.as, "", "%s has the instance %s as well. Delete the one that is not real.", first,
				in.ProviderID)
			continue
		}
		taken[in.ProviderID] = m.as
		if facts[m.class] == nil {
			facts[m.class] = in.facts
		}
		p.machine(m, in)
	}
	p.unnamed(taken)
	return facts
}

// without reports a machine that has no instance.
func (p *planner) without(m candidate) {
	if !m.class.searched {
		return // Nobody knows; that the class could not be read was reported.
	}
	if node := p.nodes.named(m.Machine.NodeName); node != nil && m.Machine.NodeName != "" {
		p.blockf(CodeInstanceNotFound, m.as, "", "Its Node %s exists, and the cloud shows no instance of it with the account "+
			"of class %s. Correct the credentials, or delete the Node if the instance is gone.", node.Name, m.class.name)
		return
	}
	what := "It has no instance. Its set makes another machine when the migration is completed."
	switch {
	case m.Machine.Deleting:
		what = "It is being deleted and has no instance."
	case m.set == nil:
		what = "It has no instance, and no set that would make another machine."
	}
	p.plan.findings.addf(provider.FindingNote, CodeNoInstance, m.as, "", "%s", what)
}

// unnamed reports instances of the old system that no machine has.
func (p *planner) unnamed(taken map[string]string) {
	for _, id := range slices.Sorted(maps.Keys(p.seen)) {
		if taken[id] == "" {
			p.plan.findings.addf(provider.FindingNote, CodeUnnamedInstance, "Instance/"+id, "",
				"No old machine in scope has it; it is left alone.")
		}
	}
}

// machine plans the copy of a machine.
func (p *planner) machine(m candidate, in located) {
	switch {
	case in.state == provider.StateTerminating:
		p.blockf(CodeInFlight, m.as, "", "Its instance %s is being deleted. Wait until it is gone.", in.ProviderID)
		return
	case m.Machine.Updating:
		p.blockf(CodeInFlight, m.as, "", "The old system is changing it in place. Wait until that is done.")
		return
	}
	if problem := p.nodes.mismatch(in.ProviderID, m.Machine.NodeName); problem != "" {
		p.blockf(CodeNodeMismatch, m.as, "", "%s", problem)
		return
	}
	if other := p.ours.byProviderID[in.ProviderID]; other != nil && oldUID(other) != m.old.GetUID() {
		p.blockf(CodeInstanceClaimed, m.as, "", "Machine %s has the instance %s already. Delete the old "+
			"object that is not real, or the Machine; of two Migrations with the same instance abort one.",
			client.ObjectKeyFromObject(other), in.ProviderID)
	}
	if other := p.ours.machines[m.object.Name]; other != nil && oldUID(other) != m.old.GetUID() {
		m.object.Name = nameBeside(m.object.Name, m.old.GetUID())
	}
	if m.set != nil {
		m.set.machines++
	}
	in.facts, m.instances = nil, nil // They were for the class.
	p.plan.machines = append(p.plan.machines, &machine{candidate: m, instance: in})
}

// located is what the plan keeps of an instance.
type located struct {
	ProviderID string
	Collected  bool
	state      provider.InstanceState
	facts      []byte
}

// locatedIndex finds the instances of one class by what an old machine is known by.
type locatedIndex struct {
	byUID, byName map[string][]located
	byID          map[string]located
}

func indexOf(all []provider.Located) locatedIndex {
	index := locatedIndex{byUID: map[string][]located{}, byName: map[string][]located{}, byID: map[string]located{}}
	for i := range all {
		found := &all[i]
		in := located{ProviderID: found.Instance.ProviderID, Collected: found.Collected, state: found.Instance.State,
			facts: found.Facts}
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

// of returns the instances of a machine: by the UID in a tag, else by the provider ID that the old object has, else by
// name.
func (x locatedIndex) of(m *candidate) []located {
	if found := x.byUID[string(m.old.GetUID())]; len(found) > 0 {
		return found
	}
	if in, found := x.byID[m.Machine.ProviderID]; found {
		return []located{in}
	}
	return x.byName[m.old.GetName()]
}

func idsOf(all []located) string {
	var ids []string
	for _, in := range all {
		ids = append(ids, in.ProviderID)
	}
	slices.Sort(ids)
	return strings.Join(ids, ", ")
}
