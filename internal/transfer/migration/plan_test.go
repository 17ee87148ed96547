package migration

import (
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	oldSet     = "general-5f94495bd9"
	oldMachine = "general-5f94495bd9-x7k2p"
)

func healthy(t *testing.T) *oldFleet {
	t.Helper()
	return fleetOf(t, provider.SourceClusterK8s, "healthy")
}

func resize(t *testing.T, object *unstructured.Unstructured, size string) {
	path := []string{"spec", "providerSpec", "value", "cloudProviderSpec", "vmSize"}
	if object.GetKind() != "Machine" {
		path = append([]string{"spec", "template"}, path...)
	}
	write(t, object, size, path...)
}

func machineNamed(t *testing.T, p *plan, old string) *machine {
	t.Helper()
	i := slices.IndexFunc(p.machines, func(m *machine) bool { return m.old.GetName() == old })
	if i < 0 {
		t.Fatalf("no Machine is planned for machine %s:\n%s", old, p.findings.text())
	}
	return p.machines[i]
}

func TestMachineThatDiffersFromItsSetGetsItsOwnClass(t *testing.T) {
	f := healthy(t)
	f.addCopy("Machine", oldMachine, "large", func(o *unstructured.Unstructured) { resize(t, o, "Standard_D8s_v3") })
	made := f.plan()
	alike, unlike := machineNamed(t, made, oldMachine), machineNamed(t, made, "large")
	if alike.class != alike.set.class {
		t.Errorf("a machine like its set has the class %s, but the set has %s", alike.class.name, alike.set.class.name)
	}
	if unlike.class == unlike.set.class || unlike.set != alike.set {
		t.Errorf("a machine that differs from its set has the class %s of the set", unlike.class.name)
	}
	if got := string(unlike.class.object.Spec.ProviderSpec.Raw); !strings.Contains(got, "Standard_D8s_v3") {
		t.Errorf("the class is %s", got)
	}
	if b := made.blockers(); len(b) > 0 {
		t.Errorf("blocked by %s", b)
	}
}

func TestOldSetsWithTheSameTemplateBecomeOneSet(t *testing.T) {
	f := healthy(t)
	f.addCopy("MachineSet", oldSet, "general-older", func(o *unstructured.Unstructured) {
		write(t, o, int64(2), "spec", "replicas")
		write(t, o, "1", "metadata", "annotations", "machinedeployment.clusters.k8s.io/revision")
	})
	f.addCopy("Machine", oldMachine, "of-the-older", func(o *unstructured.Unstructured) {
		owners := o.GetOwnerReferences()
		owners[0].Name, owners[0].UID = "general-older", "general-older"
		o.SetOwnerReferences(owners)
	})
	made := f.plan()
	if n := len(made.deployments[0].sets); n != 1 {
		t.Fatalf("two old sets with the same template become %d sets", n)
	}
	s := made.deployments[0].sets[0]
	if s.replicas != 5 || s.machines != 2 || s.object.ReplicasOrDefault() != 5 {
		t.Errorf("the set has %d replicas for %d of the old sets and %d machines", s.object.ReplicasOrDefault(), s.replicas,
			s.machines)
	}
	if revisionOf(s.object) != 2 || oldUID(s.object) != f.named("MachineSet", oldSet).GetUID() {
		t.Errorf("the set has revision %d and comes from %s, not from the newer set", revisionOf(s.object), oldUID(s.object))
	}
	if machineNamed(t, made, "of-the-older").set != s {
		t.Error("the machine of the older set is not in the set that replaces it")
	}
}

// Even a frozen set deletes surplus machines.
func TestSetHasReplicasForAllCopiedMachines(t *testing.T) {
	f := healthy(t)
	for _, name := range []string{"two", "three", "four", "five"} {
		f.addCopy("Machine", oldMachine, name, nil)
	}
	made := f.plan()
	d := made.deployments[0]
	s := d.sets[0].object
	if s.ReplicasOrDefault() != 5 || d.object.ReplicasOrDefault() != 5 {
		t.Errorf("the set has %d replicas and the deployment %d for 5 machines", s.ReplicasOrDefault(),
			d.object.ReplicasOrDefault())
	}
	if got := postponedFor(s).Replicas; got == nil || *got != 3 {
		t.Errorf("the set gets %v replicas later, expected 3", got)
	}
	if got := postponedFor(d.object).Replicas; got == nil || *got != 3 {
		t.Errorf("the deployment gets %v replicas later, expected 3", got)
	}
	f = healthy(t)
	if s := f.plan().deployments[0].sets[0].object; s.ReplicasOrDefault() != 3 {
		t.Errorf("a set that lacks machines has %d replicas, expected those of the old set", s.ReplicasOrDefault())
	}
}

// Rule: unadoptable-instance-blocks.
func TestFindingsOfMachine(t *testing.T) {
	uid := func(f *oldFleet) types.UID { return f.named("Machine", oldMachine).GetUID() }
	object := "Machine/" + oldMachine
	for name, c := range map[string]struct {
		change func(*oldFleet)
		level  provider.FindingLevel
		code   string
		made   int
	}{
		"no instance, no Node":    {func(f *oldFleet) { f.cloud.located = nil; clear(f.nodes.byName) }, note, CodeNoInstance, 0},
		"no instance, but a Node": {func(f *oldFleet) { f.cloud.located = nil }, blocker, CodeInstanceNotFound, 0},
		"several instances": {func(f *oldFleet) {
			f.cloud.located = append(f.cloud.located, instanceOf("twin", uid(f)))
		}, blocker, CodeSeveralInstances, 0},
		"the instance is being deleted": {func(f *oldFleet) {
			f.cloud.located[0].Instance.State = provider.StateTerminating
		}, blocker, CodeInFlight, 0},
		"the Node has another provider ID": {func(f *oldFleet) {
			clear(f.nodes.byProviderID)
			f.nodes.byName[oldMachine].Spec.ProviderID = "sim:///spelled-otherwise"
		}, blocker, CodeNodeMismatch, 0},
		"two Nodes have the provider ID": {func(f *oldFleet) { f.node("other", "sim:///"+oldMachine) }, blocker,
			CodeNodeMismatch, 0},
		"the machine names the Node of another instance": {func(f *oldFleet) {
			f.nodes.byProviderID["sim:///"+oldMachine][0] = f.node("other", "sim:///other")
		}, blocker, CodeNodeMismatch, 0},
		"another Machine has the instance": {func(f *oldFleet) {
			f.own.byProviderID["sim:///"+oldMachine] = &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
		}, blocker, CodeInstanceClaimed, 1},
		"the provider refuses the instance": {func(f *oldFleet) {
			f.cloud.located[0].NotAdoptable = "it lacks a tag"
		}, blocker, CodeNotAdoptable, 1},
		"the set does not exist": {func(f *oldFleet) {
			f.objects = slices.DeleteFunc(f.objects, func(o *unstructured.Unstructured) bool { return o.GetName() == oldSet })
		}, blocker, CodeOwnerMissing, 0},
	} {
		t.Run(name, func(t *testing.T) {
			f := healthy(t)
			c.change(f)
			made := f.plan()
			made.expect(t, c.level, c.code, object)
			if len(made.machines) != c.made {
				t.Errorf("%d Machines are planned", len(made.machines))
			}
			if made.oldMachines != 1 {
				t.Errorf("%d old machines are in scope, expected 1", made.oldMachines)
			}
		})
	}
}

func TestSecondMachineWithTheSameInstanceIsBlocker(t *testing.T) {
	f := healthy(t)
	f.addCopy("Machine", oldMachine, "claims-it-too", func(o *unstructured.Unstructured) {
		unstructured.RemoveNestedField(o.Object, "status", "nodeRef")
		write(t, o, "sim:///"+oldMachine, "spec", "providerID")
	})
	f.cloud.located = f.cloud.located[:1]
	made := f.plan()
	made.expect(t, blocker, CodeInstanceClaimed, "Machine/claims-it-too")
	if len(made.machines) != 1 {
		t.Errorf("%d Machines are planned for one instance", len(made.machines))
	}
}

func TestInstancesAreFoundByUIDThenProviderIDThenName(t *testing.T) {
	uid, byID, byName := instanceOf("by-uid", ""), instanceOf("by-id", ""), instanceOf(oldMachine, "")
	for name, c := range map[string]struct {
		located []provider.LocatedInstance
		want    string
	}{
		"all three": {[]provider.LocatedInstance{byName, byID, uid}, "sim:///by-uid"},
		"no tag":    {[]provider.LocatedInstance{byName, byID}, "sim:///by-id"},
		"a name":    {[]provider.LocatedInstance{byName}, "sim:///" + oldMachine},
	} {
		f := healthy(t)
		old := f.named("Machine", oldMachine)
		write(t, old, "sim:///by-id", "spec", "providerID")
		clear(f.nodes.byName)
		clear(f.nodes.byProviderID)
		f.cloud.located = slices.Clone(c.located)
		for i := range f.cloud.located {
			if f.cloud.located[i].Machine == "by-uid" {
				f.cloud.located[i].MachineUID = old.GetUID()
			}
		}
		if got := machineNamed(t, f.plan(), oldMachine).instance.ProviderID; got != c.want {
			t.Errorf("%s: the instance is %s, expected %s", name, got, c.want)
		}
	}
}

func TestInstanceWithoutMachineIsNote(t *testing.T) {
	f := healthy(t)
	f.cloud.located = append(f.cloud.located, instanceOf("orphan", "gone"))
	f.plan().expect(t, note, CodeUnnamedInstance, "Instance/sim:///orphan")
}

func TestDeploymentWithoutSetOfItsTemplateIsLoss(t *testing.T) {
	f := healthy(t)
	resize(t, f.named("MachineDeployment", "general"), "Standard_D16s_v3")
	f.plan().expect(t, loss, CodeRolloutPending, "MachineDeployment/general")
	write(t, f.named("MachineDeployment", "general"), int64(0), "spec", "replicas")
	if all := f.plan().findings.withCode(CodeRolloutPending); len(all) > 0 {
		t.Error("a deployment without machines is reported to roll out")
	}
}

func TestTemplateThatDiffersFromSetIsNote(t *testing.T) {
	f := healthy(t)
	write(t, f.named("MachineDeployment", "general"), "changed", "spec", "template", "spec", "metadata", "labels", "pool")
	f.plan().expect(t, note, CodeTemplateApplied, "MachineSet/"+oldSet)
}

func TestSetWithoutItsOwnerIsBlocker(t *testing.T) {
	f := healthy(t)
	f.objects = slices.DeleteFunc(f.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "MachineDeployment"
	})
	made := f.plan()
	if all := made.findings.withCode(CodeOwnerMissing); len(all) != 2 || all[0].object != "MachineSet/"+oldSet {
		t.Errorf("without the deployment, the findings about the set and its machine are:\n%s", made.findings.text())
	}
	if len(made.machines) != 0 {
		t.Error("a Machine is planned without its set")
	}
}

func TestMissingClassIsBlocker(t *testing.T) {
	f := fleetOf(t, provider.SourceGardener, "healthy")
	f.objects = slices.DeleteFunc(f.objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "MachineClass"
	})
	made := f.plan()
	if !slices.Contains(made.blockers(), CodeClassMissing) || len(made.deployments)+len(made.sets)+len(made.machines) > 0 {
		t.Errorf("without the class, there are %d deployments, %d sets, %d machines\n%s", len(made.deployments),
			len(made.sets), len(made.machines), made.findings.text())
	}
}

func TestTakenNameIsBlocker(t *testing.T) {
	free := healthy(t).plan()
	class, set := free.classes[0], free.deployments[0].sets[0].object
	if free.classes[0].firstObject != "MachineDeployment/general" {
		t.Fatalf("the class comes from %s", class.firstObject)
	}
	for name, c := range map[string]struct {
		put  func(*ownObjects, string)
		what string
	}{
		"a class": {func(o *ownObjects, by string) {
			o.classes[class.name] = &v1beta1.MachineClass{ObjectMeta: madeBy(class.name, by)}
		}, "MachineDeployment/general"},
		"a deployment": {func(o *ownObjects, by string) {
			o.deployments["general"] = &v1beta1.MachineDeployment{ObjectMeta: madeBy("general", by)}
		}, "MachineDeployment/general"},
		"a set of a deployment": {func(o *ownObjects, by string) {
			o.sets[set.Name] = &v1beta1.MachineSet{ObjectMeta: madeBy(set.Name, by)}
		}, "MachineSet/" + oldSet},
		"a set": {func(o *ownObjects, by string) {
			o.sets["alone"] = &v1beta1.MachineSet{ObjectMeta: madeBy("alone", by)}
		}, "MachineSet/alone"},
		"a health check": {func(o *ownObjects, by string) {
			o.checks["alone"] = &v1beta1.MachineHealthCheck{ObjectMeta: madeBy("alone", by)}
		}, "MachineSet/alone"},
	} {
		f := healthy(t)
		c.put(f.own, "")
		f.plan().expect(t, blocker, CodeNameTaken, c.what)
		f = healthy(t)
		c.put(f.own, "other")
		found := f.plan().expect(t, blocker, CodeNameTaken, c.what)
		const want = "Migration other created it: complete or abort that Migration."
		if !strings.HasSuffix(found.Message, want) {
			t.Errorf("%s of another Migration: %s", name, found.Message)
		}
		f = healthy(t)
		c.put(f.own, "move")
		if b := f.plan().blockers(); len(b) > 0 {
			t.Errorf("%s that the migration itself created is a Blocker: %s", name, b)
		}
	}
}

func madeBy(name, migration string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "fleet", Name: name, Labels: map[string]string{v1beta1.LabelMigration: migration},
		Annotations: map[string]string{v1beta1.AnnotationMigratedFrom: "group/old"}}
}

func TestMachineWhoseNameIsTakenGetsAnotherName(t *testing.T) {
	f := healthy(t)
	f.own.machines[oldMachine] = &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: oldMachine}}
	made := f.plan()
	uid := f.named("Machine", oldMachine).GetUID()
	if got, want := machineNamed(t, made, oldMachine).object.Name, alternativeName(oldMachine, uid); got != want {
		t.Errorf("the machine is named %s, expected %s", got, want)
	}
	if b := made.blockers(); len(b) > 0 {
		t.Errorf("blocked by %s", b)
	}
	// An earlier pass has created this Machine, so its name stays the same.
	f.own.machines[oldMachine].Annotations = map[string]string{v1beta1.AnnotationMigratedFrom: "g/ns/x/" + string(uid)}
	if got := machineNamed(t, f.plan(), oldMachine).object.Name; got != oldMachine {
		t.Errorf("the copy of an earlier pass is renamed to %s", got)
	}
}

// Rule: migration-plan-is-agreed-to.
func TestHashDoesNotDependOnTheNumberOfMachines(t *testing.T) {
	f := healthy(t)
	agreed := f.plan().hash
	for _, name := range []string{"two", "three", "four"} {
		f.addCopy("Machine", oldMachine, name, nil)
	}
	if got := f.plan().hash; got != agreed {
		t.Errorf("with three more machines, the hash is %s, the agreed one %s:\n%s", got, agreed, f.plan().findings.text())
	}
	f.addCopy("Machine", oldMachine, "large", func(o *unstructured.Unstructured) { resize(t, o, "Standard_D8s_v3") })
	if got := f.plan().hash; got == agreed {
		t.Error("with another class, the hash is the same")
	}
}
