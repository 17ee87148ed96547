package migration

import (
	"strings"
	"testing"
)

// fleetWithNodeID returns a fleet with an instance in the group "Group", and a Node with the given provider ID.
func fleetWithNodeID(t *testing.T, id string) *oldFleet {
	t.Helper()
	f := healthy(t)
	f.cloud.located[0].Instance.ProviderID = "sim:///Group/" + oldMachine
	node := f.nodes.byName[oldMachine]
	clear(f.nodes.byProviderID)
	node.Spec.ProviderID = id
	f.nodes.byProviderID[id] = append(f.nodes.byProviderID[id], node)
	return f
}

// Rule: migration-keeps-ids-of-nodes.
func TestIDsOfNodesMayDifferInCase(t *testing.T) {
	f := fleetWithNodeID(t, "sim:///group/"+oldMachine)
	made := f.plan()
	m := machineNamed(t, made, oldMachine)
	if got := m.class.object.Spec.NodeProviderID; got != "sim:///group/<<INSTANCE_ID>>" {
		t.Errorf("the class has the nodeProviderID %q", got)
	}
	if m.instance.ProviderID != "sim:///Group/"+oldMachine ||
		m.instance.nodeProviderID != "sim:///group/"+oldMachine {
		t.Errorf("the machine has the instance %+v", m.instance)
	}
	f.addCopy("Machine", oldMachine, "exact", nil) // One class cannot have two spellings.
	if b := f.plan().findings.withCode(CodeNodeMismatch); len(b) != 1 || b[0].object != "Machine/"+oldMachine {
		t.Errorf("with two spellings, the findings are %v", b)
	}
}

// Rule: migration-keeps-ids-of-nodes.
func TestOverrideKeepsIDsOfNodes(t *testing.T) {
	f := fleetWithNodeID(t, "other:///x/"+oldMachine)
	made := f.plan()
	found := made.expect(t, blocker, CodeNodeMismatch, "Machine/"+oldMachine)
	class := made.sets[0].class.name
	if len(made.deployments) > 0 {
		class = made.deployments[0].sets[0].class.name
	}
	want := "--override '" + class + `={"nodeProviderID": "other:///x/<<INSTANCE_ID>>"}'`
	if !strings.Contains(found.Message, want) {
		t.Fatalf("got the message %q, want %q in it", found.Message, want)
	}
	f.override(class, `{"nodeProviderID":"other:///x/<<INSTANCE_ID>>"}`)
	got := machineNamed(t, f.plan(), oldMachine).class.object.Spec.NodeProviderID
	if got != "other:///x/<<INSTANCE_ID>>" {
		t.Errorf("the class has the nodeProviderID %q", got)
	}
}
