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

// The data of the control cluster is put back to a snapshot while the processes run: versions of objects go back,
// machines that were made since are unknown, and machines that were deleted since are there again. No instance with a
// node that serves is removed, and no machine gets two. In the end a person has the unknown instances taken in.
//
// Rules: older-data-ends-process and unknown-instances-taken-in.
func TestEtcdIsPutBackToASnapshotUnderRunningProcesses(t *testing.T) {
	t.Parallel()
	const size = 6
	// Its lease outlasts the time without an API server, so that the manager ends for no other reason.
	m := start(t, stack.Options{
		SeparateTarget: true, ProviderArgs: slices.Concat(defaultLease, orphanChecks()),
		ManagerArgs: []string{"--leader-election-lease-duration=40s", "--leader-election-renew-deadline=30s"},
	})
	m.quick()
	m.fleet(size, nil)
	first := m.running(size)
	rolled := m.anotherDeployment("rolled", 2)
	m.running(size + 2)

	t.Log("the snapshot has one machine more, which has no instance yet")
	m.do(m.Provider.Kill)
	m.resize("workers", size+1)
	m.await("a machine more", func(all []v1beta1.Machine) bool { return len(all) == size+3 })
	snapshot := filepath.Join(t.TempDir(), "snapshot")
	m.do(func() error { return m.Control.Snapshot(t.Context(), snapshot) })
	m.do(m.Provider.Start)
	m.do(func() error { return m.AwaitLeader(t.Context(), m.Provider) })
	m.running(size + 3)
	known := m.machines()

	t.Log("since then machines are made, deleted and replaced by a rollout")
	m.resize("workers", size+3)
	m.running(size + 5)
	for i := range first[:2] {
		m.do(func() error { return m.control.Delete(t.Context(), &first[i]) })
	}
	m.await("two other machines", func(all []v1beta1.Machine) bool {
		return !has(all, first[0].Name) && !has(all, first[1].Name)
	})
	m.running(size + 5)
	m.command("rollout", "restart", "md/"+rolled)
	m.command("rollout", "status", "md/"+rolled, "--timeout=2m")
	m.running(size + 5)
	unknown := map[string]bool{}
	for _, machine := range m.machines() {
		if !has(known, machine.Name) {
			unknown[machine.Spec.ProviderID] = true
		}
	}
	if len(unknown) != 2+2+2 {
		t.Fatalf("%d machines were made since the snapshot, want 6", len(unknown))
	}
	before, nodes := m.launches(), m.serving()

	t.Log("the snapshot is put back")
	m.do(func() error { return m.Control.PutBack(t.Context(), snapshot) })
	m.startAgain(m.Manager, m.Provider)
	log, err := os.ReadFile(m.Manager.LogPath())
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(log), "restored to an older state")

	t.Log("machines without an instance are replaced, the others are as before")
	m.running(size + 3)
	m.resize("workers", size+2)
	m.running(size + 4)
	m.blocked()
	now := m.launches()
	for id, launch := range before {
		if now[id] != launch {
			t.Errorf("instance %s, whose node serves, was removed or restarted: %q, before %q", id, now[id], launch)
		}
	}
	after := m.serving()
	for name, uid := range nodes {
		if after[name] != uid {
			t.Errorf("node %s is %q, before %q", name, after[name], uid)
		}
	}
	m.oneInstanceEach()

	t.Log("a person has machines made again that take the unknown instances over")
	contains(t, m.command("orphans"), "6 found")
	set := ""
	for _, machine := range m.machines() {
		if machine.Labels["pool"] == "workers" {
			set = machine.Labels[v1beta1.LabelMachineSet]
		}
	}
	contains(t, m.command("orphans", "adopt", "--all", "--set", set, "--dry-run"), "Nothing was changed")
	contains(t, m.command("orphans", "adopt", "--all", "--set", set), "6 machines created")
	m.running(size + 4 + 6)
	contains(t, m.command("orphans", "adopt", "--all", "--set", set), "0 machines created")
	if again := m.launches(); !maps.Equal(again, now) {
		t.Errorf("the instances are %v, not %v", again, now)
	}
	m.resize("workers", size+2+6)
	m.kubectl("wait", "md/workers", "--for=condition=Ready", "--timeout=60s")
	if again := m.launches(); !maps.Equal(again, now) {
		t.Errorf("after the deployment took them in the instances are %v, not %v", again, now)
	}
	m.unblocked()
}

func has(machines []v1beta1.Machine, name string) bool {
	return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.Name == name })
}

// anotherDeployment makes a deployment like that of the example under another name.
func (m *machinist) anotherDeployment(name string, replicas int32) string {
	m.t.Helper()
	like := m.deployment()
	d := &v1beta1.MachineDeployment{Spec: *like.Spec.DeepCopy()}
	d.Namespace, d.Name, d.Spec.Replicas = namespace, name, ptr.To(replicas)
	d.Spec.Selector.MatchLabels = map[string]string{"pool": name}
	d.Spec.Selector.MatchExpressions = nil
	d.Spec.Template.ObjectMeta.Labels = map[string]string{"pool": name}
	m.do(func() error { return m.control.Create(m.t.Context(), d) })
	return name
}

// resize sets the replicas of a deployment.
func (m *machinist) resize(name string, replicas int32) {
	m.t.Helper()
	d := &v1beta1.MachineDeployment{}
	m.do(func() error {
		return m.control.Get(m.t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d)
	})
	before := d.DeepCopy()
	d.Spec.Replicas = &replicas
	m.do(func() error { return m.control.Patch(m.t.Context(), d, client.MergeFrom(before)) })
}

// startAgain does what a Deployment does: it starts processes anew that end by themselves, and waits for that.
func (m *machinist) startAgain(processes ...*child.Process) {
	m.t.Helper()
	for _, p := range processes {
		eventually(m.t, p.Name+" ends", func() (bool, string) { return !p.Running(), "it runs" })
		m.do(p.Start)
	}
	for _, p := range processes {
		m.do(func() error { return m.AwaitLeader(m.t.Context(), p) })
	}
}

// blocked waits until a class reports that instances without a machine wait for a person.
func (m *machinist) blocked() {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineClassList{}, "a class with orphans", func(l *v1beta1.MachineClassList) (bool,
		string) {
		return isBlocked(l), fmt.Sprint(l.Items)
	}, client.InNamespace(namespace))
}

// unblocked waits until no class does.
func (m *machinist) unblocked() {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineClassList{}, "no orphans", func(l *v1beta1.MachineClassList) (bool, string) {
		return !isBlocked(l), fmt.Sprint(l.Items)
	}, client.InNamespace(namespace))
}

func isBlocked(l *v1beta1.MachineClassList) bool {
	return slices.ContainsFunc(l.Items, func(c v1beta1.MachineClass) bool {
		return meta.IsStatusConditionTrue(c.Status.Conditions, v1beta1.ConditionOrphanRemovalBlocked)
	})
}

// oneInstanceEach checks that no two instances are tagged with one machine.
func (m *machinist) oneInstanceEach() {
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
