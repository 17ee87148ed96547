package migration

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

func TestMigrationIsCompleted(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	l.stage(v1beta1.MigrationCommit)
	m := l.runUntil(v1beta1.MigrationCompleted)
	if c := m.Status.Machines; c != (v1beta1.MigrationCounts{Total: 3, Copied: 3, Adopted: 3}) {
		t.Errorf("at the end, the counts are %+v", c)
	}
	l.fenceIsDown()
	if left := l.state(); len(left) > 0 {
		t.Errorf("old objects remain: %v", left)
	}
	for _, kind := range l.system().Kinds() {
		name := client.ObjectKey{Name: kind.Resource + "." + kind.Group}
		if err := l.admin.Get(l.ctx, name, &apiextensionsv1.CustomResourceDefinition{}); !apierrors.IsNotFound(err) {
			t.Errorf("the definition %s remains: %v", name.Name, err)
		}
	}
	if n := l.replicas(); n != 0 {
		t.Errorf("the old workload has %d replicas", n)
	}
	for _, o := range l.ownObjects() {
		if hasKey(o.GetLabels(), v1beta1.LabelMigration) || hasKey(o.GetLabels(), v1beta1.LabelFreeze) ||
			hasKey(o.GetAnnotations(), v1beta1.AnnotationAfterMigration) {
			t.Errorf("%s %s still has a label or annotation of the migration", kindOf(o), o.GetName())
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
				t.Errorf("health check %s does not replace machines", o.Name)
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
		t.Errorf("the calls of the cloud are %v", l.cloud.calls)
	}
	secrets := &corev1.SecretList{}
	l.must(l.admin.List(l.ctx, secrets, client.InNamespace(l.from)))
	for _, s := range secrets.Items {
		if len(s.Finalizers) > 0 {
			t.Errorf("Secret %s has the finalizers %v", s.Name, s.Finalizers)
		}
	}
	l.outlastFormerLeader()
	l.must(l.admin.Get(l.ctx, l.key, m))
	if len(m.Finalizers) > 0 {
		t.Errorf("after the end, the migration has the finalizers %v", m.Finalizers)
	}
}

// Rule: migration-abort-restores.
func TestMigrationIsAborted(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	before := l.state()
	l.stage(v1beta1.MigrationAbort)
	l.watch = func(m *v1beta1.Migration) {
		machines := 0
		for name := range l.ownObjects() {
			if strings.HasPrefix(name, "Machine/") {
				machines++
			}
		}
		if len(l.cloud.owners) > machines {
			l.Errorf("%d instances have the tags of %d Machines", len(l.cloud.owners), machines)
		}
		if machines > 0 && l.replicas() != 0 {
			l.Error("the old controller runs while Machines exist")
		}
		l.unchanged(before)
	}
	l.runUntil(v1beta1.MigrationAborted)
	m := l.pass()
	l.fenceIsDown()
	if left := l.ownObjects(); len(left) > 0 {
		t.Errorf("objects of Machinist remain: %v", slices.Sorted(maps.Keys(left)))
	}
	if len(l.cloud.owners) > 0 {
		t.Errorf("%d instances still have Machinist's tags", len(l.cloud.owners))
	}
	if n := l.replicas(); n != 2 {
		t.Errorf("the old workload has %d of 2 replicas", n)
	}
	for _, n := range l.fleetNodes() {
		if hasKey(n.Labels, v1beta1.NodeLabelMachine) || len(n.Finalizers) != 1 || len(n.Annotations) != 2 {
			t.Errorf("Node %s has labels %v, finalizers %v and annotations %v", n.Name, n.Labels, n.Finalizers, n.Annotations)
		}
	}
	if c := m.Status.Machines; c.Copied != 0 || c.Adopted != 0 || c.Total != 3 {
		t.Errorf("at the end, the counts are %+v", c)
	}
	l.must(l.admin.Delete(l.ctx, m))
	l.outlastFormerLeader()
	if err := l.admin.Get(l.ctx, l.key, m); !apierrors.IsNotFound(err) {
		t.Errorf("an aborted migration cannot be deleted: %v", err)
	}
	l.cleanOld()
}

func TestMigrationReportsProviderThatDoesNotRun(t *testing.T) {
	l := newJourney(t)
	l.planned()
	l.runUntil(v1beta1.MigrationAdopting)
	waits := func(want string) {
		t.Helper()
		l.providerDown = true
		begun := l.clock.Now()
		eventually(l, "the migration reports the provider", func() bool {
			troubles := strings.Join(l.pass().Status.Troubles, "\n")
			if troubles != "" && l.clock.Since(begun) < stallTimeout {
				l.Fatalf("after only %s, the migration reports %s", l.clock.Since(begun), troubles)
			}
			return strings.Contains(troubles, want)
		})
		l.providerDown = false
		l.pass() // The provider writes the status of the Machines, and the migrator reads it.
		if troubles := l.pass().Status.Troubles; len(troubles) > 0 {
			t.Errorf("the provider runs again, but the migration still reports %v", troubles)
		}
	}
	waits("For a minute, the process of provider sim has not adopted machine ")
	l.stage(v1beta1.MigrationAbort)
	waits("The process of provider sim has not confirmed the pause ")
	l.runUntil(v1beta1.MigrationAborted)
	l.cleanOld()
}

// The fence does not stop the old controller, which marks the Nodes again.
//
// Rule: migration-names-what-comes-back.
func TestMigrationReportsOldControllerThatStillRuns(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	node := l.fleetNodes()[0].DeepCopy()
	l.watch = func(m *v1beta1.Migration) {
		if m.Status.Phase == v1beta1.MigrationCommitting {
			l.must(l.admin.Patch(l.ctx, node.DeepCopy(), merge(`{"metadata":{"annotations":{`+
				`"node.machine.sapcloud.io/last-applied-anno-labels-taints":"{}"}}}`)))
		}
	}
	l.stage(v1beta1.MigrationCommit)
	want := "The old system's keys reappear on node " + node.Name
	eventually(l, "the migration names the node", func() bool {
		return strings.Contains(strings.Join(l.pass().Status.Troubles, "\n"), want)
	})
	l.watch = func(*v1beta1.Migration) {}
	l.pass()
	l.runUntil(v1beta1.MigrationCompleted)
}

// Another controller scales the old workload up again.
//
// Rule: migration-names-what-comes-back.
func TestMigrationReportsFenceWithoutProgress(t *testing.T) {
	l := newJourney(t)
	l.planned()
	l.watch = func(*v1beta1.Migration) {
		d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: l.from, Name: oldWorkload}}
		l.must(l.admin.Patch(l.ctx, d, merge(`{"spec":{"replicas":2}}`)))
	}
	waits := "scaling Deployment " + l.from + "/" + oldWorkload + " to 0"
	var begun time.Time
	eventually(l, "the fence waits", func() bool {
		begun = l.clock.Now()
		stuck := meta.FindStatusCondition(l.pass().Status.Conditions, v1beta1.ConditionStuck)
		return stuck.Status == metav1.ConditionFalse && stuck.Message == "The migration waits for the fence: "+waits+"."
	})
	eventually(l, "the migration is stuck", func() bool {
		l.clock.Step(time.Minute)
		now := l.clock.Now()
		m := l.pass()
		troubles := strings.Join(m.Status.Troubles, "\n")
		if stuck := meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionStuck); stuck != (troubles != "") ||
			stuck != (now.Sub(begun) >= fenceStallTimeout) {
			l.Fatalf("after %s, Stuck is %t, and the troubles are %q", now.Sub(begun), stuck, troubles)
		}
		return troubles == "For 5 minutes, the migration has waited for the fence: "+waits
	})
	l.watch = func(*v1beta1.Migration) {}
	l.pass()
	l.runUntil(v1beta1.MigrationSettling)
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	l.cleanOld()
}

// A plan with a missing workload is blocked, so that the migration does not stop the other workloads.
//
// Rule: migration-workloads-exist.
func TestPlanNamesMissingWorkloads(t *testing.T) {
	l := newJourney(t)
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	existing := m.Spec.Fence.Workloads
	wrong := v1beta1.MigrationWorkload{Kind: "Deployment", Namespace: l.from, Name: "wrong"}
	m.Spec.Fence.Workloads = slices.Concat(existing, []v1beta1.MigrationWorkload{wrong})
	l.must(l.admin.Update(l.ctx, m))
	l.pass()
	l.pass()
	l.stage(v1beta1.MigrationAdopt)
	m = l.pass()
	want := "spec.fence.workloads[1]: Deployment " + l.from + "/wrong does not exist. Correct --stop."
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned); c == nil ||
		!strings.Contains(c.Message, CodeWorkloadUnreadable) || !strings.Contains(c.Message, want) ||
		m.Status.Phase != v1beta1.MigrationPlanning || l.replicas() == 0 {
		t.Fatalf("in phase %s with %d replicas, the condition Planned is %+v, want %q", m.Status.Phase, l.replicas(),
			c, want)
	}
	m.Spec.Fence.Workloads = existing
	l.must(l.admin.Update(l.ctx, m))
	l.runUntil(v1beta1.MigrationFencing)
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	l.cleanOld()
}

// Rules: migration-finds-something, migration-abort-needs-no-fence.
func TestMigrationOfMissingNamespace(t *testing.T) {
	l := newJourney(t)
	m := &v1beta1.Migration{}
	l.must(l.admin.Get(l.ctx, l.key, m))
	l.must(l.admin.Delete(l.ctx, m))
	l.key.Name = "lost"
	m = &v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}, Spec: m.Spec}
	m.Spec.SourceNamespace = l.from + "-misspelled"
	l.must(l.admin.Create(l.ctx, m))
	l.pass()
	m = l.pass()
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPlanned); c == nil ||
		c.Status != metav1.ConditionFalse || !strings.Contains(c.Message, CodeNothingFound) ||
		!strings.Contains(c.Message, "these namespaces: "+l.from) {
		t.Fatalf("the condition Planned is %+v, want it to name the namespace %s", c, l.from)
	}
	l.stage(v1beta1.MigrationAdopt)
	for range 3 {
		if m = l.pass(); m.Status.Phase != v1beta1.MigrationPlanning || l.replicas() == 0 {
			t.Fatalf("the migration is %s and the old workload has %d replicas", m.Status.Phase, l.replicas())
		}
	}

	// The namespace may also disappear later, and then no probe succeeds.
	m.Status.Phase = v1beta1.MigrationFencing
	l.must(l.admin.Status().Update(l.ctx, m))
	l.r.NewClient = func() (client.Client, error) { return nil, errors.New("no connection") }
	eventually(l, "the probe fails", func() bool {
		_, _ = l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
		l.playWorkload()
		l.clock.Step(l.r.Timing.ProbeInterval)
		l.must(l.admin.Get(l.ctx, l.key, m))
		return strings.Contains(strings.Join(m.Status.Troubles, " "), "no connection")
	})
	l.r.Timing.ProbeInterval = time.Minute
	version := m.ResourceVersion
	for range 5 { // Between two probes, nothing changes.
		_, _ = l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
		l.clock.Step(time.Second)
	}
	l.must(l.admin.Get(l.ctx, l.key, m))
	if m.ResourceVersion != version {
		t.Errorf("between two probes, the status changes to %+v", m.Status)
	}
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	l.pass()
	if n := l.replicas(); n != 2 {
		t.Errorf("the old workload has %d of 2 replicas", n)
	}
	l.cleanOld()
}
