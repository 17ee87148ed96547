//go:build e2e

package e2e

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud/driver"
)

// Prometheus scrapes all kinds of processes. Each process fails in its own way, and the alert for this failure must
// fire.
//
// Rules: alerts-fire-for-their-cause.
func TestProcessAlertsFire(t *testing.T) {
	t.Parallel()
	const migrator = "machinist-migrator-" + driver.Name
	addresses := map[string]string{}
	for _, name := range []string{stack.Manager, stack.Provider, migrator, installer.Name} {
		addresses[name] = freeAddress(t)
	}
	metrics := func(name string) []string { return []string{"--metrics-bind-address=" + addresses[name]} }
	m := start(t, stack.Options{NoTarget: true, ManagerArgs: metrics(stack.Manager),
		ProviderArgs: metrics(stack.Provider)})
	m.removeDelays()
	m.createFleet(2, plainUserData)
	m.awaitAvailable(2)
	migrating, err := m.NewMigrator(context.Background(), []string{namespace}, migrator,
		append(metrics(migrator), migratorLease...)...)
	if err != nil {
		t.Fatal(err)
	}
	for _, other := range []*child.Process{migrating, m.installer(metrics(installer.Name)...)} {
		m.must(other.Start)
		t.Cleanup(func() {
			if err := other.Stop(15 * time.Second); err != nil {
				t.Errorf("stop %s: %v", other.Name, err)
			}
		})
	}
	p := m.startPrometheus(addresses)
	p.awaitLeaders(len(addresses))
	for name, address := range addresses {
		p.lint(name, address, newToken(t, m.control, "scraper"))
	}

	m.create(&v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "odd"}, Spec: v1beta1.ProviderSpec{Type: "nonsense"}})
	m.create(&v1beta1.Migration{ObjectMeta: metav1.ObjectMeta{Name: "over"}, Spec: v1beta1.MigrationSpec{
		Source: provider.SourceGardener, SourceNamespace: namespace, Provider: driver.Name,
		Fence: v1beta1.MigrationFence{
			Leases:    []v1beta1.MigrationLease{{Namespace: namespace, Name: "old"}},
			Workloads: []v1beta1.MigrationWorkload{{Kind: "Deployment", Namespace: namespace, Name: "old"}},
		}}})
	m.refuse(m.control, "sets", "machinesets/status", admissionv1.Update,
		`request.userInfo.username == "`+stack.Manager+`"`)
	m.scale(3)
	p.awaitFiring("MachinistInstallationDegraded", "MachinistMigrationStuck", "MachinistReconcileErrors")

	m.must(func() error { return m.Provider.Stop(15 * time.Second) })
	stop := m.requestClasses()
	p.awaitFiring("MachinistProviderMissing", "MachinistWebhookFailing")
	stop()
	m.must(m.Provider.Start)

	m.stealLease()
	<-m.Manager.Done()
	p.awaitFiring("MachinistManagerMissing")
	m.must(m.Manager.Start)
	p.awaitFiring("MachinistNoLeader")
	p.wantRulesEvaluated()
	p.wantPanelData(aboutProcesses)
}

func (m *machinist) installer(args ...string) *child.Process {
	return &child.Process{Name: installer.Name, Path: filepath.Join(binDir(m.t), installer.Name), Dir: m.t.TempDir(),
		Args: append([]string{"--control-kubeconfig=" + m.Control.Kubeconfig(), "--health-probe-bind-address=0",
			"--leader-election-namespace=" + stack.SystemNamespace}, args...)}
}

func (m *machinist) requestClasses() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(500 * time.Millisecond)
		defer tick.Stop()
		for {
			class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "dry-run"},
				Spec: v1beta1.MachineClassSpec{Provider: driver.Name, ProviderSpec: providerSpec(m.t, "small")}}
			// Ignore the result, because the alert must report whether the webhook answers.
			_ = m.control.Create(ctx, class, client.DryRunAll)
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	end := func() { cancel(); <-done }
	m.t.Cleanup(end)
	return end
}

// stealLease writes another holder into the manager's Lease. The new holder keeps the Lease for an hour and does
// nothing.
func (m *machinist) stealLease() {
	m.t.Helper()
	lease := &coordinationv1.Lease{}
	key := client.ObjectKey{Namespace: stack.SystemNamespace, Name: stack.Manager}
	if err := m.control.Get(context.Background(), key, lease); err != nil {
		m.t.Fatal(err)
	}
	before, now := lease.DeepCopy(), metav1.NowMicro()
	lease.Spec.HolderIdentity, lease.Spec.LeaseDurationSeconds = new("thief"), new(int32(3600))
	lease.Spec.AcquireTime, lease.Spec.RenewTime = &now, &now
	// The patch has no resourceVersion, because the manager updates its Lease all the time.
	if err := m.control.Patch(context.Background(), lease, client.MergeFrom(before)); err != nil {
		m.t.Fatal(err)
	}
}
