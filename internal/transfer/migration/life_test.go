package migration

import (
	"maps"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// TestAMigrationIsCompleted leads one from the plan to its end.
func TestAMigrationIsCompleted(t *testing.T) {
	l := newLife(t)
	l.adoptedFleet()
	l.stage(v1beta1.MigrationCommit)
	m := l.until(v1beta1.MigrationCompleted)
	if c := m.Status.Machines; c != (v1beta1.MigrationCounts{Total: 3, Copied: 3, Adopted: 3}) {
		t.Errorf("at the end are %+v", c)
	}
	l.fenceIsDown()
	if left := l.state(); len(left) > 0 {
		t.Errorf("of the old objects are left %v", left)
	}
	for _, kind := range l.system().Kinds() {
		name := client.ObjectKey{Name: kind.Resource + "." + kind.Group}
		if err := l.admin.Get(l.ctx, name, &apiextensionsv1.CustomResourceDefinition{}); !apierrors.IsNotFound(err) {
			t.Errorf("the definition %s is left: %v", name.Name, err)
		}
	}
	if n := l.replicas(); n != 0 {
		t.Errorf("the old workload has %d replicas", n)
	}
	for _, o := range l.ours() {
		if has(o.GetLabels(), v1beta1.LabelMigration) || has(o.GetLabels(), v1beta1.LabelFreeze) ||
			has(o.GetAnnotations(), v1beta1.AnnotationAfterMigration) {
			t.Errorf("%s %s is held back yet", kindOf(o), o.GetName())
		}
		switch o := o.(type) {
		case *v1beta1.MachineClass:
			if o.Spec.Adoption != v1beta1.AdoptionForbid {
				t.Errorf("class %s still allows adoption", o.Name)
			}
		case *v1beta1.Machine:
			if deleting := !o.DeletionTimestamp.IsZero(); deleting != strings.HasSuffix(o.Name, "-c") {
				t.Errorf("Machine %s is being deleted: %t", o.Name, deleting)
			}
		case *v1beta1.MachineHealthCheck:
			if o.Name != "alone" && o.Spec.Remediation.TypeOrDefault() == v1beta1.RemediationNone {
				t.Errorf("health check %s replaces nothing", o.Name)
			}
		}
	}
	for _, n := range l.fleetNodes() {
		if len(n.Finalizers) > 0 || len(n.Annotations) != 1 || n.Annotations["mine"] != "stays" {
			t.Errorf("Node %s has finalizers %v and annotations %v", n.Name, n.Finalizers, n.Annotations)
		}
	}
	slices.Sort(l.cloud.calls)
	if len(l.cloud.calls) != 3 || slices.ContainsFunc(l.cloud.calls, func(c string) bool { return c[:7] != "release" }) {
		t.Errorf("of the cloud was asked %v", l.cloud.calls)
	}
	secrets := &corev1.SecretList{}
	l.must(l.admin.List(l.ctx, secrets, client.InNamespace(l.from)))
	for _, s := range secrets.Items {
		if len(s.Finalizers) > 0 {
			t.Errorf("Secret %s has the finalizers %v", s.Name, s.Finalizers)
		}
	}
	l.letGo()
	l.must(l.admin.Get(l.ctx, l.key, m))
	if len(m.Finalizers) > 0 {
		t.Errorf("a migration that has ended is held by %v", m.Finalizers)
	}
}

// TestAMigrationIsAborted leads one to Adopted and back.
//
// Rule: migration-abort-restores.
func TestAMigrationIsAborted(t *testing.T) {
	l := newLife(t)
	l.adoptedFleet()
	before := l.state()
	l.stage(v1beta1.MigrationAbort)
	l.watch = func(m *v1beta1.Migration) {
		machines := 0
		for name := range l.ours() {
			if strings.HasPrefix(name, "Machine/") {
				machines++
			}
		}
		if len(l.cloud.owners) > machines {
			l.Errorf("%d instances have the tags of %d Machines", len(l.cloud.owners), machines)
		}
		if machines > 0 && l.replicas() != 0 {
			l.Error("the old controller runs while Machines are left")
		}
		l.unchanged(before)
	}
	m := l.until(v1beta1.MigrationAborted)
	l.fenceIsDown()
	if left := l.ours(); len(left) > 0 {
		t.Errorf("of ours are left %v", slices.Sorted(maps.Keys(left)))
	}
	if len(l.cloud.owners) > 0 {
		t.Errorf("%d instances have our tags", len(l.cloud.owners))
	}
	if n := l.replicas(); n != 2 {
		t.Errorf("the old workload has %d replicas of 2", n)
	}
	for _, n := range l.fleetNodes() {
		if has(n.Labels, v1beta1.NodeLabelMachine) || len(n.Finalizers) != 1 || len(n.Annotations) != 2 {
			t.Errorf("Node %s has labels %v, finalizers %v and annotations %v", n.Name, n.Labels, n.Finalizers, n.Annotations)
		}
	}
	if c := m.Status.Machines; c.Copied != 0 || c.Adopted != 0 || c.Total != 3 {
		t.Errorf("at the end are %+v", c)
	}
	l.must(l.admin.Delete(l.ctx, m))
	l.letGo()
	if err := l.admin.Get(l.ctx, l.key, m); !apierrors.IsNotFound(err) {
		t.Errorf("a migration that was aborted cannot be deleted: %v", err)
	}
	l.cleanOld()
}

// TestAMigrationNamesTheProcessThatItWaitsFor has a provider's process that does not run, on the way there and back.
func TestAMigrationNamesTheProcessThatItWaitsFor(t *testing.T) {
	l := newLife(t)
	l.planned()
	l.until(v1beta1.MigrationAdopting)
	waits := func(want string) {
		t.Helper()
		l.providerDown = true
		begun := l.clock.Now()
		eventually(l, "the migration names who does nothing", func() bool {
			troubles := strings.Join(l.pass().Status.Troubles, "\n")
			if troubles != "" && l.clock.Since(begun) < patience {
				l.Fatalf("after %s it is said that %s", l.clock.Since(begun), troubles)
			}
			return strings.Contains(troubles, want)
		})
		l.providerDown = false
		l.pass() // The process reports what it does, and the migration reads it.
		if troubles := l.pass().Status.Troubles; len(troubles) > 0 {
			t.Errorf("the process runs again, and there is still %v", troubles)
		}
	}
	waits("The process of provider sim has adopted none of 1 machine for a while, the first is ")
	l.stage(v1beta1.MigrationAbort)
	waits("The process of provider sim has not said that it leaves ")
	l.until(v1beta1.MigrationAborted)
	l.cleanOld()
}

// TestAMigrationNamesAnOldControllerThatGoesOn has one that the fence does not stop: it marks its Nodes again.
// Rule: migration-names-what-comes-back.
func TestAMigrationNamesAnOldControllerThatGoesOn(t *testing.T) {
	l := newLife(t)
	l.adoptedFleet()
	node := l.fleetNodes()[0].DeepCopy()
	l.watch = func(m *v1beta1.Migration) {
		if m.Status.Phase == v1beta1.MigrationCommitting {
			l.must(l.admin.Patch(l.ctx, node.DeepCopy(), merge(`{"metadata":{"annotations":{`+
				`"node.machine.sapcloud.io/last-applied-anno-labels-taints":"{}"}}}`)))
		}
	}
	l.stage(v1beta1.MigrationCommit)
	want := "The old system's keys come back to 1 node, the first is " + node.Name
	eventually(l, "the migration names the node", func() bool {
		return strings.Contains(strings.Join(l.pass().Status.Troubles, "\n"), want)
	})
	l.watch = func(*v1beta1.Migration) {}
	l.pass()
	l.until(v1beta1.MigrationCompleted)
}
