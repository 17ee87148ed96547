//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
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
)

// migration is one that takes over the fleet of an old system.
type migration struct {
	*oldFleet
	name string
	// migrators are candidates for one lease.
	migrators []*child.Process
	userData  *v1beta1.UserDataRef
}

// migrate makes a Migration and starts its migrator.
func (f *oldFleet) migrate() *migration {
	f.t.Helper()
	m := f.startMigrators(1)
	m.begin("over")
	return m
}

// migratorLease lets another migrator follow soon, and is not lost on a busy machine: nobody starts a migrator again.
var migratorLease = []string{"--leader-election-lease-duration=6s", "--leader-election-renew-deadline=5s",
	"--leader-election-retry-period=500ms"}

// startMigrators starts migrators with times that suit one API server and a cloud that answers at once.
func (f *oldFleet) startMigrators(n int) *migration {
	f.t.Helper()
	m := &migration{oldFleet: f, userData: f.newUserData()}
	for i := range n {
		migrator, err := f.NewMigrator(context.Background(), fmt.Sprintf("migrator-%d", i+1),
			append([]string{"--fence-probe-interval=50ms", "--fence-lease-margin=1s", "--remove-kinds-after=1s",
				"--create-settle=1s"}, migratorLease...)...)
		if err != nil {
			f.t.Fatal(err)
		}
		f.t.Cleanup(func() {
			if f.t.Failed() {
				f.t.Log(migrator.LogTail())
			}
			if err := migrator.Kill(); err != nil {
				f.t.Error(err)
			}
		})
		if err := migrator.Start(); err != nil {
			f.t.Fatal(err)
		}
		m.migrators = append(m.migrators, migrator)
	}
	return m
}

// begin makes a Migration of the fleet.
func (m *migration) begin(name string) {
	f := m.oldFleet
	f.t.Helper()
	m.name = name
	var leases []v1beta1.MigrationLease
	for _, name := range f.leases {
		leases = append(leases, v1beta1.MigrationLease{Namespace: f.workload.Namespace, Name: name})
	}
	object := &v1beta1.Migration{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: m.name},
		Spec: v1beta1.MigrationSpec{Source: f.group, SourceNamespace: f.namespace, Provider: driver.Name,
			UserDataRef: m.userData,
			Fence: v1beta1.MigrationFence{Leases: leases, Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment",
				Namespace: f.workload.Namespace, Name: f.workload.Name}}}},
	}
	if f.namespace == "" {
		// Cluster-scoped machines say nothing of the Leases' namespace; the workload does.
		object.Spec.SourceNamespace = f.workload.Namespace
	}
	if err := f.control.Create(context.Background(), object); err != nil {
		f.t.Fatal(err)
	}
}

// bounce kills processes at once, and starts them again.
func (m *migration) bounce(processes ...*child.Process) {
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

// newUserData makes the Secret with the bootstrap template of new machines, for fleets whose old system made it itself.
func (f *oldFleet) newUserData() *v1beta1.UserDataRef {
	f.t.Helper()
	objects, err := examples.Fleet()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, o := range objects {
		if secret, ok := o.(*corev1.Secret); ok && secret.Name == examples.UserDataSecret {
			secret.Namespace = namespace
			if err := f.control.Create(context.Background(), secret); err != nil {
				f.t.Fatal(err)
			}
			return &v1beta1.UserDataRef{Name: secret.Name}
		}
	}
	f.t.Fatal("the example has no user data")
	return nil
}

// until waits until the migration is as it should be.
func (m *migration) until(what string, done func(*v1beta1.Migration) bool) *v1beta1.Migration {
	m.t.Helper()
	var found v1beta1.Migration
	env.Await(m.t, m.control, &v1beta1.MigrationList{}, what, func(l *v1beta1.MigrationList) (bool, string) {
		for i := range l.Items {
			if found = l.Items[i]; found.Name == m.name {
				return done(&found), describeMigration(&found)
			}
		}
		return false, "there is none"
	}, client.InNamespace(namespace))
	return &found
}

func describeMigration(m *v1beta1.Migration) string {
	lines := []string{fmt.Sprintf("%s, machines %+v", m.Status.Phase, m.Status.Machines)}
	for _, c := range m.Status.Conditions {
		lines = append(lines, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
	}
	return strings.Join(append(lines, m.Status.Troubles...), "\n")
}

// planned waits for the plan and returns the codes of what is lost.
func (m *migration) planned() (losses []string) {
	m.t.Helper()
	plan := m.until("the plan", func(o *v1beta1.Migration) bool { return o.Status.PlanHash != "" })
	for _, finding := range plan.Status.Findings {
		m.t.Logf("%s %s ×%d: %s", finding.Level, finding.Code, finding.Count, finding.Message)
		switch provider.FindingLevel(finding.Level) {
		case provider.FindingBlocker:
			m.t.Errorf("the plan is blocked: %s", finding.Message)
		case provider.FindingLoss:
			losses = append(losses, finding.Code)
		}
	}
	return losses
}

// stage raises the stage. Another writer is no reason to give up.
func (m *migration) stage(stage v1beta1.MigrationStage, accept ...string) {
	m.t.Helper()
	eventually(m.t, "the stage "+string(stage), func() (bool, string) {
		object := &v1beta1.Migration{}
		err := m.control.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: m.name}, object)
		if err == nil {
			object.Spec.Stage, object.Spec.PlanHash = stage, object.Status.PlanHash
			object.Spec.Accept = append(object.Spec.Accept, accept...)
			err = m.control.Update(context.Background(), object)
		}
		return err == nil, fmt.Sprint(err)
	})
}

// reaches waits for a phase.
func (m *migration) reaches(phase v1beta1.MigrationPhase) {
	m.t.Helper()
	began := time.Now()
	m.until("the phase "+string(phase), func(o *v1beta1.Migration) bool { return o.Status.Phase == phase })
	m.t.Logf("%s after %s", phase, time.Since(began).Round(time.Second/10))
}

// wantNoOldKinds fails the test where a definition of the old kinds exists.
func (m *migration) wantNoOldKinds() {
	m.t.Helper()
	for _, kind := range m.kinds() {
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
			m.t.Errorf("the definition %s is left", d.Name)
		}
	}
}

// wantNoOldWebhook fails the test where the old system's admission webhook is there.
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

// wantNothingOfOurs fails the test where something that the migration made is left: objects, tags, keys on Nodes.
func (m *migration) wantNothingOfOurs() {
	m.t.Helper()
	for _, list := range []client.ObjectList{&v1beta1.MachineList{}, &v1beta1.MachineSetList{},
		&v1beta1.MachineDeploymentList{}, &v1beta1.MachineClassList{}, &v1beta1.MachineHealthCheckList{}} {
		if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			m.t.Fatal(err)
		}
		if n := meta.LenList(list); n > 0 {
			m.t.Errorf("%T has %d objects", list, n)
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

// wantUndisturbed fails the test where the fleet was touched.
func (m *migration) wantUndisturbed(w *fleetWatch) {
	m.t.Helper()
	if seen := w.disturbances(); len(seen) > 0 {
		m.t.Errorf("the Nodes were disturbed:\n%s", strings.Join(seen, "\n"))
	}
	m.wantUnchanged()
}

// Rules: migration-touches-no-machine, migration-old-controller-fenced, migration-removes-old-objects,
// migration-removes-old-webhooks.
func TestMigrationTakesAFleetOver(t *testing.T) {
	t.Parallel()
	groups := provider.Sources()
	if !full() {
		// TestMigrationSurvivesKills and TestMigrationByTheCommandLine take fleets of two others over.
		groups = []string{provider.SourceOpenShift}
	}
	for _, group := range groups {
		t.Run(group, func(t *testing.T) {
			t.Parallel()
			const machines = 4
			f := start(t, stack.Options{}).oldFleet(group, machines)
			f.losesItsWebhook()
			w := f.watch()
			m := f.migrate()
			losses := m.planned()
			m.stage(v1beta1.MigrationAdopt, losses...)
			m.reaches(v1beta1.MigrationAdopted)
			m.wantOldObjects()
			m.wantUndisturbed(w)
			w = f.watch()
			m.stage(v1beta1.MigrationCommit)
			m.reaches(v1beta1.MigrationCompleted)
			m.wantUndisturbed(w)
			if group != provider.SourceOpenShift { // Its operator would bring the definitions back.
				m.wantNoOldKinds()
			}
			m.wantNoOldWebhook()
			m.running(machines)
			m.works()
		})
	}
}

// works sees that the fleet is Machinist's: one machine is deleted, and replaced if a set owns it.
func (m *migration) works() {
	m.t.Helper()
	machines := m.machineList()
	i := slices.IndexFunc(machines, func(o v1beta1.Machine) bool { return metav1.GetControllerOf(&o) != nil })
	owned := i >= 0
	machine := machines[max(i, 0)]
	instance := m.instanceWith(machine.Spec.ProviderID)
	if err := m.control.Delete(context.Background(), &machine); err != nil {
		m.t.Fatal(err)
	}
	m.untilTerminated(instance)
	if owned {
		m.running(len(machines))
		return
	}
	m.running(len(machines) - 1)
}

func (m *migration) machineList() []v1beta1.Machine {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

// deleteOld asks whether a person may delete an old object; the error is what the API server says.
func (m *migration) deleteOld() error {
	object := m.someMachine()
	return m.control.Delete(context.Background(), object, client.DryRunAll)
}

// wantRefused fails the test unless the error is that of the migration's policy.
func (m *migration) wantRefused(what string, err error) {
	m.t.Helper()
	if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) ||
		!strings.Contains(fmt.Sprint(err), "Migration "+namespace+"/"+m.name) {
		m.t.Errorf("%s: %v", what, err)
	}
}

// Rules: migration-old-objects-closed, migration-copies-closed.
func TestMigrationClosesWhatItWorksOn(t *testing.T) {
	onlyInFull(t, "the policies of package internal/transfer/migration at a real API server")
	t.Parallel()
	f := start(t, stack.Options{}).oldFleet(provider.SourceClusterK8s, 3)
	m := f.migrate()
	losses := m.planned()
	if err := m.deleteOld(); err != nil {
		t.Errorf("before it is run, the migration closes old objects: %v", err)
	}
	m.stage(v1beta1.MigrationAdopt, losses...)
	m.reaches(v1beta1.MigrationAdopted)
	m.wantRefused("delete an old machine", m.deleteOld())
	m.wantRefused("apply an old manifest again", m.applyOld())
	m.wantRefused("take the Lease", m.takeLease())
	machine := m.machineList()[0]
	m.wantRefused("delete a machine", m.control.Delete(context.Background(), &machine, client.DryRunAll))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"timeouts":{"drain":"1s"}}}`))
	m.wantRefused("change a machine", m.control.Patch(context.Background(), &machine, patch, client.DryRunAll))

	f.life = len(f.log())
	stood := m.fencedSince()
	f.scaleWorkload(1)
	m.until("the old controller is stopped again, and the fence stands", func(o *v1beta1.Migration) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionFenced)
		return c.Status == metav1.ConditionTrue && c.LastTransitionTime.After(stood)
	})
	if changes := f.changes(); len(changes) > 0 {
		t.Errorf("the old controller came back and changed:\n%s", strings.Join(changes, "\n"))
	}
	m.wantOldObjects()

	m.stage(v1beta1.MigrationAbort)
	m.reaches(v1beta1.MigrationAborted)
	eventually(t, "after it is aborted, old objects are open again", func() (bool, string) {
		err := m.deleteOld()
		return err == nil, fmt.Sprint(err)
	})
}

// fencedSince is when the fence began to stand.
func (m *migration) fencedSince() time.Time {
	m.t.Helper()
	o := m.until("the fence", func(o *v1beta1.Migration) bool {
		return meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionFenced)
	})
	return meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionFenced).LastTransitionTime.Time
}

// applyOld applies a manifest of the old fleet again, as GitOps does from time to time.
func (m *migration) applyOld() error {
	for _, o := range m.made(len(m.before.instances)) {
		if o.GetKind() != "MachineDeployment" {
			continue
		}
		return m.control.Apply(context.Background(), client.ApplyConfigurationFromUnstructured(o), client.ForceOwnership,
			client.FieldOwner("gitops"))
	}
	return errors.New("the fleet has no deployment")
}

// takeLease writes somebody else into the Lease of the old controller, which may run where it cannot be stopped.
func (m *migration) takeLease() error {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: m.workload.Namespace, Name: m.leases[0]}}
	return m.control.Patch(context.Background(), lease, client.RawPatch(types.MergePatchType,
		[]byte(`{"spec":{"holderIdentity":"old controller elsewhere"}}`)))
}
