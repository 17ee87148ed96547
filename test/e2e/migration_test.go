//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/fleet"
	"machinist.dev/machinist/test/manifests/sources"
)

type migration struct {
	*oldFleet
	*fleet.Migration
	migrators []*child.Process
	userData  *v1beta1.UserDataRef
}

func (f *oldFleet) migrate() *migration {
	f.t.Helper()
	m := f.startMigrators(1)
	m.createMigration("over")
	return m
}

// migratorLease contains flags for a quick takeover. The lease duration still suits a busy computer, because a
// migrator that has lost its Lease ends and is not restarted in these tests.
var migratorLease = []string{"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=5s",
	"--leader-election-retry-period=500ms"}

func (f *oldFleet) startMigrators(n int) *migration {
	f.t.Helper()
	m := &migration{oldFleet: f, userData: f.newUserData(), Migration: &fleet.Migration{T: f.t, Control: f.control,
		Key: client.ObjectKey{Namespace: namespace}, Patience: env.Patience}}
	for i := range n {
		namespaces := []string{namespace, f.workload.Namespace}
		if f.group == provider.SourceClusterAPI {
			namespaces = append(namespaces, f.namespace)
		}
		migrator, err := f.NewMigrator(context.Background(), namespaces,
			fmt.Sprintf("migrator-%d", i+1),
			append([]string{"--fence-probe-interval=50ms", "--fence-lease-margin=1s", "--remove-kinds-after=1s",
				"--create-settle=1s"}, migratorLease...)...)
		if err != nil {
			f.t.Fatal(err)
		}
		f.killAtEnd(migrator)
		if err := migrator.Start(); err != nil {
			f.t.Fatal(err)
		}
		m.migrators = append(m.migrators, migrator)
	}
	return m
}

func (m *migration) createMigration(name string) {
	f := m.oldFleet
	f.t.Helper()
	m.Key.Name = name
	var leases []v1beta1.MigrationLease
	for _, name := range f.leases {
		leases = append(leases, v1beta1.MigrationLease{Namespace: f.workload.Namespace, Name: name})
	}
	object := &v1beta1.Migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.Key.Name},
		Spec: v1beta1.MigrationSpec{Source: f.group, SourceNamespace: f.namespace, Provider: driver.Name,
			UserDataRef: m.userData,
			Fence: v1beta1.MigrationFence{Leases: leases, Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment",
				Namespace: f.workload.Namespace, Name: f.workload.Name}}}},
	}
	if f.group == provider.SourceClusterAPI {
		object.Spec.Fence.Workloads = nil // The controllers of Cluster API also serve its webhooks.
	}
	if f.namespace == "" {
		// For cluster-scoped machines, the namespace of the workload determines the namespace of the Leases.
		object.Spec.SourceNamespace = f.workload.Namespace
	}
	if err := f.control.Create(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
}

func (m *migration) restart(processes ...*child.Process) {
	m.t.Helper()
	for _, p := range processes {
		if err := p.Kill(); err != nil {
			m.t.Fatal(err)
		}
	}
	for _, p := range processes {
		if err := p.Start(); err != nil {
			m.t.Fatal(err)
		}
	}
}

func (f *oldFleet) newUserData() *v1beta1.UserDataRef {
	f.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range objects {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == examples.UserDataSecret {
			secret.Namespace = namespace
			// The machines of some old systems have no kubelet version.
			for key, text := range secret.StringData {
				secret.StringData[key] = strings.ReplaceAll(text, "<<KUBELET_VERSION>>", "v1.36.3")
			}
			if err := f.control.Create(context.Background(), secret); err != nil {
				f.t.Fatal(err)
			}
			return &v1beta1.UserDataRef{Name: secret.Name}
		}
	}
	f.t.Fatal("the example has no user data")
	return nil
}

func (m *migration) wantNoOldKinds() {
	m.t.Helper()
	for _, kind := range sources.Kinds(m.group) {
		if left := m.list(kind); len(left) > 0 {
			m.t.Errorf("%d %ss are left", len(left), kind.Kind)
		}
	}
	definitions := &metav1.PartialObjectMetadataList{}
	definitions.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1",
		Kind: "CustomResourceDefinitionList"})
	if err := m.control.List(context.Background(), definitions); err != nil {
		m.t.Fatal(err)
	}
	for _, d := range definitions.Items {
		if strings.HasSuffix(d.Name, "."+m.group) {
			m.t.Errorf("the CRD %s is left", d.Name)
		}
	}
}

func (m *migration) wantNoOldWebhook() {
	m.t.Helper()
	list := &admissionv1.ValidatingWebhookConfigurationList{}
	if err := m.control.List(context.Background(), list); err != nil {
		m.t.Fatal(err)
	}
	for _, w := range list.Items {
		if w.Name == oldWebhook {
			m.t.Errorf("the webhook %s is left", w.Name)
		}
	}
}

func (m *migration) wantNothingOfMachinist() {
	m.t.Helper()
	for _, list := range []client.ObjectList{&v1beta1.MachineList{}, &v1beta1.MachineSetList{},
		&v1beta1.MachineDeploymentList{}, &v1beta1.MachineClassList{}, &v1beta1.MachineHealthCheckList{}} {
		if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			m.t.Fatal(err)
		}
		if n := meta.LenList(list); n > 0 {
			m.t.Errorf("%T: got %d objects, want none", list, n)
		}
	}
	for _, r := range m.instances() {
		for key := range r.Tags {
			if strings.HasPrefix(key, "machinist-") && r.State != simcloud.StateTerminated {
				m.t.Errorf("instance %s of %s has the tag %s", r.ID, r.Name, key)
			}
		}
	}
	for name, node := range m.state().nodes {
		for key := range node.Annotations {
			if strings.HasPrefix(key, "machinist.dev/") {
				m.t.Errorf("Node %s has the annotation %s", name, key)
			}
		}
	}
}

func (m *migration) wantUndisturbed(w *fleet.Watch) {
	m.t.Helper()
	if seen := w.Disturbances(); len(seen) > 0 {
		m.t.Errorf("the Nodes were disturbed:\n%s", strings.Join(seen, "\n"))
	}
	m.wantUnchanged()
}

// Rules: migration-touches-no-machine, migration-old-controller-fenced, migration-removes-old-objects,
// migration-removes-old-webhooks.
func TestMigrationAdoptsFleet(t *testing.T) {
	t.Parallel()
	groups := slices.Sorted(maps.Keys(oldGroups))
	if !isFull() {
		// TestMigrationSurvivesKills and TestMigrationByCommandLine migrate the fleets of two other systems.
		groups = []string{provider.SourceOpenShift}
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			const machines = 4
			f := start(t, stack.Options{}).oldFleet(group, machines)
			f.breakWebhook()
			w := f.watch()
			m := f.migrate()
			losses := m.AwaitPlan()
			m.SetStage(v1beta1.MigrationAdopt, losses...)
			m.AwaitPhase(v1beta1.MigrationAdopted)
			m.wantOldObjects()
			m.wantUndisturbed(w)
			w = f.watch()
			m.SetStage(v1beta1.MigrationCommit)
			m.AwaitPhase(v1beta1.MigrationCompleted)
			m.wantUndisturbed(w)
			if group != provider.SourceOpenShift { // The operator of OpenShift would restore the CRDs.
				m.wantNoOldKinds()
			}
			m.wantNoOldWebhook()
			m.awaitRunning(machines)
			m.wantManaged()
		})
	}
}

func (m *migration) wantManaged() {
	m.t.Helper()
	machines := m.machineList()
	i := slices.IndexFunc(machines, func(o v1beta1.Machine) bool { return metav1.GetControllerOf(&o) != nil })
	owned := i >= 0
	machine := machines[max(i, 0)]
	instance := m.instanceWith(machine.Spec.ProviderID)
	if err := m.control.Delete(context.Background(), &machine); err != nil {
		m.t.Fatal(err)
	}
	m.awaitTerminated(instance)
	if owned {
		m.awaitRunning(len(machines))
		return
	}
	m.awaitRunning(len(machines) - 1)
}

func (m *migration) machineList() []v1beta1.Machine {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

func (m *migration) tryDeleteOld() error {
	object := m.someMachine()
	return m.control.Delete(context.Background(), object, client.DryRunAll)
}

func (m *migration) wantRefused(what string, err error) {
	m.t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) ||
		!strings.Contains(fmt.Sprint(err), "Migration "+namespace+"/"+m.Key.Name) {
		m.t.Errorf("%s: got error %v, want a rejection by the policy of the migration", what, err)
	}
}

// Rules: migration-old-objects-closed, migration-copies-closed.
func TestMigrationProtectsObjects(t *testing.T) {
	onlyInFull(t, "the policies of package internal/transfer/migration in a real API server")
	t.Parallel()
	f := start(t, stack.Options{}).oldFleet(provider.SourceClusterK8s, 3)
	m := f.migrate()
	losses := m.AwaitPlan()
	if err := m.tryDeleteOld(); err != nil {
		t.Errorf("delete an old object before the migration is run: %v", err)
	}
	m.SetStage(v1beta1.MigrationAdopt, losses...)
	m.AwaitPhase(v1beta1.MigrationAdopted)
	m.wantRefused("delete an old machine", m.tryDeleteOld())
	m.wantRefused("apply an old manifest again", m.applyOld())
	m.wantRefused("take the Lease", m.takeLease())
	machine := m.machineList()[0]
	m.wantRefused("delete a machine", m.control.Delete(context.Background(), &machine, client.DryRunAll))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeouts":{"drain":"1s"}}}`))
	m.wantRefused("change a machine", m.control.Patch(context.Background(), &machine, patch, client.DryRunAll))

	f.logStart = len(f.log())
	fenced := m.fencedSince()
	f.scaleWorkload(1)
	m.Await("the old controller to be stopped again, and the fence to be closed", func(o *v1beta1.Migration) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionFenced)
		return c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(fenced)
	})
	if changes := f.changes(); len(changes) > 0 {
		t.Errorf("the old controller changed something after it was scaled up:\n%s", strings.Join(changes, "\n"))
	}
	m.wantOldObjects()

	m.SetStage(v1beta1.MigrationAbort)
	m.AwaitPhase(v1beta1.MigrationAborted)
	eventually(t, "old objects can be deleted after the abort", func() (bool, string) {
		err := m.tryDeleteOld()
		return err == nil, fmt.Sprint(err)
	})
}

func (m *migration) fencedSince() time.Time {
	m.t.Helper()
	o := m.Await("the fence", func(o *v1beta1.Migration) bool {
		return meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionFenced)
	})
	return meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionFenced).LastTransitionTime.Time
}

func (m *migration) applyOld() error {
	for _, o := range m.objects(len(m.before.instances)) {
		if o.GetKind() != "MachineDeployment" {
			continue
		}
		return m.control.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership,
			client.FieldOwner("gitops"))
	}
	return errors.New("the fleet has no deployment")
}

func (m *migration) takeLease() error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.workload.Namespace, Name: m.leases[0]}}
	return m.control.Patch(context.Background(), lease, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":"old controller elsewhere"}}`)))
}
