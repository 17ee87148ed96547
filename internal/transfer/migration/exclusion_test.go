package migration

import (
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

// windows adds a deployment of another cloud to a fleet, with a set and a machine.
func windows(f *oldFleet) {
	otherCloud := func(o *unstructured.Unstructured, path ...string) {
		write(f, o, "vsphere", append(path, "cloudProvider")...)
	}
	owned := func(o *unstructured.Unstructured, owner string) {
		owners := o.GetOwnerReferences()
		owners[0].Name, owners[0].UID = owner, f.named(owners[0].Kind, owner).GetUID()
		o.SetOwnerReferences(owners)
	}
	inTemplate := []string{"spec", "template", "spec", "providerSpec", "value"}
	f.addCopy("MachineDeployment", "general", "windows", func(o *unstructured.Unstructured) {
		otherCloud(o, inTemplate...)
	})
	f.addCopy("MachineSet", oldSet, "windows-1", func(o *unstructured.Unstructured) {
		otherCloud(o, inTemplate...)
		owned(o, "windows")
	})
	f.addCopy("Machine", oldMachine, "windows-1-a", func(o *unstructured.Unstructured) {
		otherCloud(o, "spec", "providerSpec", "value")
		owned(o, "windows-1")
	})
	f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
		if req.Legacy.Provider == "vsphere" {
			return provider.ImportedSpec{}, provider.Errorf(provider.Unimplemented, "the description is for vsphere")
		}
		return provider.ImportedSpec{Spec: importedSpec(req.Legacy)}, nil
	}
}

// Rule: migration-excludes-objects.
func TestExcludedObjectsStay(t *testing.T) {
	f := healthy(t)
	windows(f)
	if got := f.plan().blockers(); !slices.Equal(got, []string{CodeCannotImport}) {
		t.Fatalf("with machines of another cloud, the plan is blocked by %s", got)
	}
	before := f.plan().hash
	f.migration.Spec.Exclude = []string{"MachineDeployment/windows"}
	made := f.plan()
	if got := made.blockers(); len(got) > 0 {
		t.Errorf("blocked by %s:\n%s", got, made.findings.text())
	}
	var excluded []string
	for _, one := range made.findings.withCode(CodeExcluded) {
		excluded = append(excluded, one.object)
	}
	want := []string{"MachineDeployment/windows", "MachineSet/windows-1", "Machine/windows-1-a"}
	if !slices.Equal(excluded, want) {
		t.Errorf("the plan lists %s, expected %s", excluded, want)
	}
	if len(made.deployments) != 1 || len(made.machines) != 1 || made.oldMachines != 1 ||
		len(made.classes) != len(healthy(t).plan().classes) {
		t.Errorf("%d deployments, %d machines, %d old machines and %d classes are planned", len(made.deployments),
			len(made.machines), made.oldMachines, len(made.classes))
	}
	if all := made.findings.withCode(CodeUnnamedInstance); len(all) > 0 {
		t.Errorf("the instance of an excluded machine is reported: %v", all)
	}
	if made.hash == before {
		t.Error("the hash of the plan does not depend on spec.exclude")
	}
}

func TestExcludedMachineKeepsItsInstance(t *testing.T) {
	f := healthy(t)
	f.addCopy("Machine", oldMachine, "alone-too", func(o *unstructured.Unstructured) { o.SetOwnerReferences(nil) })
	f.migration.Spec.Exclude = []string{"Machine/alone-too"}
	// The machine claims the instance of the excluded machine.
	claimed := f.cloud.located[len(f.cloud.located)-1].Instance.ProviderID
	f.addCopy("Machine", oldMachine, "claims-it", func(o *unstructured.Unstructured) {
		write(f, o, claimed, "spec", "providerID")
	})
	f.cloud.located = f.cloud.located[:len(f.cloud.located)-1]
	f.plan().expect(t, blocker, CodeInstanceClaimed, "Machine/claims-it")
}

// A machine that Machinist cannot adopt, such as one of a control plane, keeps its instance.
func TestMachineOfControlPlaneKeepsItsInstance(t *testing.T) {
	const plane = "one-control-plane-abcde"
	f := fleetOf(t, provider.SourceClusterAPI, "healthy")
	f.add(sources.Samples(provider.SourceClusterAPI)["control-plane"]...)
	made := f.plan()
	if all := made.findings.withCode(CodeUnnamedInstance); len(all) > 0 {
		t.Errorf("the instance of a machine that stays is reported: %v", all)
	}
	if len(made.machines) != 1 || len(made.blockers()) > 0 {
		t.Fatalf("%d machines are planned, blocked by %s", len(made.machines), made.blockers())
	}
	claims := f.named("Machine", made.machines[0].old.GetName())
	write(t, claims, "sim:///"+plane, "spec", "providerID")
	f.cloud.located = slices.DeleteFunc(f.cloud.located, func(in provider.LocatedInstance) bool {
		return in.Machine == claims.GetName()
	})
	f.plan().expect(t, blocker, CodeInstanceClaimed, "Machine/"+claims.GetName())
}

func TestInvalidExcludeIsBlocker(t *testing.T) {
	for entry, want := range map[string]string{
		"MachineSet/missing":    "no old object MachineSet/missing",
		"MachineSet/" + oldSet:  "Exclude MachineDeployment/general instead",
		"Machine/" + oldMachine: "Exclude MachineSet/" + oldSet + " instead",
	} {
		f := healthy(t)
		f.migration.Spec.Exclude = []string{entry}
		if got := f.plan().expect(t, blocker, CodeInvalidExclude, "Migration/move"); !strings.Contains(got.Message, want) {
			t.Errorf("%s: the message is %s", entry, got.Message)
		}
	}
}

// A class that only excluded objects use is not converted, so it cannot block the plan.
func TestClassOfExcludedObjectsStays(t *testing.T) {
	f, class := gardener(t)
	deployment := ""
	for _, o := range f.objects {
		if f.role(o) == source.RoleDeployment {
			deployment = o.GetName()
		}
	}
	f.objects = append(f.objects, func() *unstructured.Unstructured {
		other := f.named("MachineClass", class).DeepCopy()
		other.SetName("other")
		other.SetUID("other")
		write(t, other, "AWS", "provider")
		return other
	}())
	f.addCopy("MachineDeployment", deployment, "other", func(o *unstructured.Unstructured) {
		write(t, o, "other", "spec", "template", "spec", "class", "name")
	})
	f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
		if req.Legacy.Provider == "AWS" {
			return provider.ImportedSpec{}, provider.Errorf(provider.Unimplemented, "the description is for AWS")
		}
		return provider.ImportedSpec{Spec: importedSpec(req.Legacy)}, nil
	}
	f.plan().expect(t, blocker, CodeCannotImport, "MachineClass/other")
	f.migration.Spec.Exclude = []string{"MachineDeployment/other"}
	if got := f.plan().blockers(); len(got) > 0 {
		t.Errorf("blocked by %s", got)
	}
}

// Rule: migration-excludes-objects.
func TestMigrationLeavesExcludedObjects(t *testing.T) {
	l := newJourney(t)
	var objects []*unstructured.Unstructured
	for _, kind := range l.system().Kinds() {
		all, err := readKind(l.ctx, l.admin, kind, l.from)
		l.must(err)
		objects = append(objects, all...)
	}
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "MachineSet" && len(o.GetOwnerReferences()) == 0
	})
	if i < 0 {
		t.Fatal("the sample has no set without a deployment")
	}
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	excluded := nameOf(objects[i])
	m.Spec.Exclude = []string{excluded}
	l.must(l.admin.Update(l.ctx, m))
	before := l.state()[excluded]
	l.adoptedFleet()
	l.must(l.admin.Get(l.ctx, l.key, m))
	m.Spec.Exclude = nil
	if err := l.admin.Update(l.ctx, m); err == nil || !strings.Contains(err.Error(), "exclude) are immutable") {
		t.Errorf("after the stage Plan, spec.exclude is changed: %v", err)
	}
	l.stage(v1beta1.MigrationCommit)
	l.runUntil(v1beta1.MigrationCompleted)
	left := l.state()
	if left[excluded] != before {
		t.Errorf("%s has the resource version %s, expected %s", excluded, left[excluded], before)
	}
	for name := range left {
		if name != excluded && !strings.HasPrefix(name, "MachineClass/") {
			t.Errorf("%s remains", name)
		}
	}
	if n := l.replicas(); n != 0 {
		t.Errorf("before the end is stored, the old workload has %d replicas", n)
	}
	l.pass()
	if n := l.replicas(); n != 2 {
		t.Errorf("the old workload has %d of 2 replicas", n)
	}
	stopped := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.from, Name: oldWorkload}}
	l.must(l.admin.Patch(l.ctx, stopped, merge(`{"spec":{"replicas":0}}`)))
	l.r.forget(m.UID) // A restarted migrator has no memory.
	l.outlastFormerLeader()
	if n := l.replicas(); n != 0 {
		t.Errorf("a user stopped the old workload, but the migrator has scaled it to %d again", n)
	}
	l.must(l.admin.Get(l.ctx, l.key, m))
	if len(m.Finalizers) > 0 {
		t.Errorf("the migration has the finalizers %v", m.Finalizers)
	}
	l.fenceIsDown()
	l.cleanOld()
}
