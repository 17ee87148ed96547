package migration

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	machinecontroller "machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/pkg/provider"
)

// The provider ID of a Node never changes. If it differs from the ID of the instance, spec.nodeProviderID of the
// class must contain the form of the IDs of Nodes, because Machinist would not find the Nodes otherwise.

// spellNodeIDs finds classes whose Nodes have the IDs of their instances in another case, such as a lower-case
// resource group. Such IDs mean the same instances, because the old objects name these Nodes. If all Nodes of a class
// agree, the class gets the form of their IDs.
func (p *planner) spellNodeIDs(machines []candidate) {
	forms := map[*class]map[string]bool{}
	for _, m := range machines {
		node := p.nodes.named(m.Machine.NodeName)
		if len(m.instances) != 1 || node == nil ||
			!strings.EqualFold(node.Spec.ProviderID, m.instances[0].ProviderID) {
			continue
		}
		if forms[m.class] == nil {
			forms[m.class] = map[string]bool{}
		}
		forms[m.class][formOf(node.Spec.ProviderID, m.instances[0])] = true
	}
	for class, all := range forms {
		for form := range all {
			if len(all) == 1 {
				class.nodeProviderID = form
			}
		}
	}
}

// formOf returns the form of the provider IDs of Nodes for a class, or "" if a Node has the ID of its instance or an
// ID that does not end with the name of the instance.
func formOf(nodeID string, in locatedInstance) string {
	name := in.ProviderID[strings.LastIndex(in.ProviderID, "/")+1:]
	prefix, found := strings.CutSuffix(nodeID, name)
	if nodeID == in.ProviderID || !found || name == "" {
		return ""
	}
	return prefix + machinecontroller.PlaceholderInstanceID
}

// nodeProviderID returns the provider ID that Machinist expects on the Node of an instance.
func (p *planner) nodeProviderID(c *class, in locatedInstance) string {
	form := c.nodeProviderID
	if i := p.overrideOf(c); i >= 0 {
		patch := struct {
			NodeProviderID string `json:"nodeProviderID"`
		}{}
		if json.Unmarshal(p.migration.Spec.Overrides[i].Patch.Raw, &patch) == nil {
			form = cmp.Or(patch.NodeProviderID, form)
		}
	}
	id := machinecontroller.NodeProviderID(form, &provider.Instance{ProviderID: in.ProviderID, NodeName: in.nodeName,
		Region: in.region})
	return cmp.Or(id, in.ProviderID)
}

// nodeIDHelp says how to keep a Node whose provider ID differs from the ID of its instance.
func (p *planner) nodeIDHelp(m candidate, in locatedInstance) string {
	node := p.nodes.named(m.Machine.NodeName)
	if node == nil {
		return ""
	}
	form := formOf(node.Spec.ProviderID, in)
	if form == "" {
		return ""
	}
	if m.class.existing {
		return fmt.Sprintf(" If the Node belongs to the instance, set spec.nodeProviderID of MachineClass %s to %s",
			m.class.name, form)
	}
	return fmt.Sprintf(" If the Node belongs to the instance, keep it with: machinist migrate plan %s -n %s "+
		`--override '%s={"nodeProviderID": "%s"}'`, p.migration.Name, p.migration.Namespace, m.class.name, form)
}
