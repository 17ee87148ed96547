//go:build e2e

package e2e

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

// The data of the control cluster is restored from a snapshot while the processes run. Newer machines become unknown,
// and deleted machines exist again. No instance with a serving node may be removed, and no machine may get a second
// instance. In the end, an administrator adopts the unknown instances.
//
// Rules: older-data-ends-process and unknown-instances-taken-in.
func TestEtcdIsRestoredUnderRunningProcesses(t *testing.T) {
	t.Parallel()
	const size = 6
	// The manager's Lease outlasts the outage of the API server. So the manager can end only because the restored API
	// server contains older data.
	m := start(t, stack.Options{
		SeparateTarget: true, ProviderArgs: slices.Concat(defaultLease, orphanChecks()),
		ManagerArgs: []string{"--leader-election-lease-duration=40s", "--leader-election-renew-deadline=30s"},
	})
	m.removeDelays()
	m.createFleet(size, nil)
	first := m.awaitRunning(size)
	rolled := m.anotherDeployment("rolled", 2)
	m.awaitRunning(size + 2)

	t.Log("take a snapshot with one more machine, which has no instance yet")
	m.must(m.Provider.Kill)
	m.scaleDeployment("workers", size+1)
	m.await("one more machine", func(all []v1beta1.Machine) bool { return len(all) == size+3 })
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	m.must(func() error { return m.Control.Snapshot(t.Context(), snapshot) })
	m.must(m.Provider.Start)
	m.must(func() error { return m.AwaitLeader(t.Context(), m.Provider) })
	m.awaitRunning(size + 3)
	known := m.machines()

	t.Log("after the snapshot, machines are created, deleted and replaced by a rollout")
	m.scaleDeployment("workers", size+3)
	m.awaitRunning(size + 5)
	for i := range first[:2] {
		m.must(func() error { return m.control.Delete(t.Context(), &first[i]) })
	}
	m.await("two other machines", func(all []v1beta1.Machine) bool {
		return !hasMachine(all, first[0].Name) && !hasMachine(all, first[1].Name)
	})
	m.awaitRunning(size + 5)
	m.command("rollout", "restart", "md/"+rolled)
	m.command("rollout", "status", "md/"+rolled, "--timeout=2m")
	m.awaitRunning(size + 5)
	unknown := map[string]bool{}
	for _, machine := range m.machines() {
		if !hasMachine(known, machine.Name) {
			unknown[machine.Spec.ProviderID] = true
		}
	}
	if len(unknown) != 2+2+2 {
		t.Fatalf("got %d machines that were created after the snapshot, want 6", len(unknown))
	}
	before, nodes := m.launchTimes(), m.servingNodes()

	t.Log("restore the snapshot")
	m.must(func() error { return m.Control.PutBack(t.Context(), snapshot) })
	m.startAgain(m.Manager, m.Provider)
	log, err := os.ReadFile(m.Manager.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(log), "restored to an older state")

	t.Log("machines without an instance are replaced, and the others do not change")
	m.awaitRunning(size + 3)
	m.scaleDeployment("workers", size+2)
	m.awaitRunning(size + 4)
	m.awaitBlockedOrphans()
	now := m.launchTimes()
	for id, launch := range before {
		if now[id] != launch {
			t.Errorf("instance %s with a serving node: got launch time %q, want %q", id, now[id], launch)
		}
	}
	after := m.servingNodes()
	for name, uid := range nodes {
		if after[name] != uid {
			t.Errorf("node %s: got %q, want %q", name, after[name], uid)
		}
	}
	m.wantOneInstanceEach()

	t.Log("an administrator creates machines that adopt the unknown instances")
	contains(t, m.command("orphans"), "6 found")
	set := ""
	for _, machine := range m.machines() {
		if machine.Labels["pool"] == "workers" {
			set = machine.Labels[v1beta1.LabelMachineSet]
		}
	}
	contains(t, m.command("orphans", "adopt", "--all", "--set", set, "--dry-run"), "Nothing was changed")
	contains(t, m.command("orphans", "adopt", "--all", "--set", set), "6 machines created")
	m.awaitRunning(size + 4 + 6)
	contains(t, m.command("orphans", "adopt", "--all", "--set", set), "0 machines created")
	if again := m.launchTimes(); !maps.Equal(again, now) {
		t.Errorf("after the adoption: got instances %v, want %v", again, now)
	}
	m.scaleDeployment("workers", size+2+6)
	m.kubectl("wait", "md/workers", "--for=condition=Ready", "--timeout=60s")
	if again := m.launchTimes(); !maps.Equal(again, now) {
		t.Errorf("after the deployment was scaled up: got instances %v, want %v", again, now)
	}
	m.awaitNoBlockedOrphans()
}

func hasMachine(machines []v1beta1.Machine, name string) bool {
	return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.Name == name })
}

func (m *machinist) anotherDeployment(name string, replicas int32) string {
	m.t.Helper()
	like := m.deployment()
	d := &v1beta1.MachineDeployment{Spec: *like.Spec.DeepCopy()}
	d.Namespace, d.Name, d.Spec.Replicas = namespace, name, ptr.To(replicas)
	d.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	d.Spec.Selector.MatchExpressions = nil
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": name}
	m.must(func() error { return m.control.Create(m.t.Context(), d) })
	return name
}

// startAgain waits until the processes have ended, restarts them as a Deployment would, and waits until they lead.
func (m *machinist) startAgain(processes ...*child.Process) {
	m.t.Helper()
	for _, p := range processes {
		eventually(m.t, p.Name+" has ended", func() (bool, string) { return !p.IsRunning(), "the process is running" })
		m.must(p.Start)
	}
	for _, p := range processes {
		m.must(func() error { return m.AwaitLeader(m.t.Context(), p) })
	}
}

func (m *machinist) awaitBlockedOrphans() {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineClassList{}, "a class with orphans", func(l *v1beta1.MachineClassList) (bool,
		string) {
		return hasBlockedOrphans(l), fmt.Sprint(l.Items)
	}, client.InNamespace(namespace))
}

func (m *machinist) awaitNoBlockedOrphans() {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineClassList{}, "no orphans", func(l *v1beta1.MachineClassList) (bool, string) {
		return !hasBlockedOrphans(l), fmt.Sprint(l.Items)
	}, client.InNamespace(namespace))
}

func hasBlockedOrphans(l *v1beta1.MachineClassList) bool {
	return slices.ContainsFunc(l.Items, func(c v1beta1.MachineClass) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
	})
}

func (m *machinist) wantOneInstanceEach() {
	m.t.Helper()
	seen := map[string]string{}
	for _, in := range m.instances() {
		if in.State == simcloud.StateTerminated {
			continue
		}
		uid := in.Tags[provider.TagMachineUID]
		if other := seen[uid]; other != "" {
			m.t.Errorf("machine %s has the instances %s and %s", uid, other, in.ProviderID)
		}
		seen[uid] = strings.Clone(in.ProviderID)
	}
}
