//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
)

// A control cluster loses its data, including all UIDs. A backup restores the fleet with the same instances. No
// instance may be created or deleted, and the Nodes must stay in service.
//
// Rule: adoption-by-former-identity.
func TestFleetIsRestoredAfterLossOfControlCluster(t *testing.T) {
	t.Parallel()
	const size = 50
	m := start(t, stack.Options{SeparateTarget: true})
	m.removeDelays()
	m.createFleet(size, nil)
	m.awaitRunning(size)
	instances, nodes := m.launchTimes(), m.servingNodes()
	if len(instances) != size || len(nodes) != size {
		t.Fatalf("got %d instances and %d nodes, want %d of each", len(instances), len(nodes), size)
	}
	uids := m.machineUIDs()

	file := filepath.Join(t.TempDir(), "fleet.yaml")
	contains(t, m.command("backup", "-A", "-f", file), "50 machines of cluster ")
	former := regexp.MustCompile(`of cluster (\S+)\.`).FindStringSubmatch(m.command("backup", "-A", "-f", file+"2"))[1]
	if err := m.LoseControlCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if machines := m.await("machines", func(all []v1beta1.Machine) bool { return true }); len(machines) > 0 {
		t.Fatalf("got %d machines after the loss, want none", len(machines))
	}
	if out, err := m.tryCommand("restore", "-f", file, "--from-cluster=another"); err == nil {
		t.Errorf("restore with another cluster ID succeeded:\n%s", out)
	}

	t.Log(m.command("restore", "-f", file, "--from-cluster="+former))
	m.awaitRunning(size)
	m.wantSame("after the restore", instances, nodes)
	for name, uid := range m.machineUIDs() {
		if uid == uids[name] {
			t.Errorf("machine %s has the same UID as before the loss", name)
		}
	}
	m.kubectl("wait", "md/workers", "--for=condition=Ready", "--timeout=60s")
	contains(t, m.command("restore", "-f", file, "--from-cluster="+former), "50 existed already")
	m.wantSame("after restoring again", instances, nodes)

	t.Log("Machinist manages the fleet: it scales up by one, and then down by two")
	m.scale(size + 1)
	m.awaitRunning(size + 1)
	m.scale(size - 1)
	m.await("two machines fewer", func(all []v1beta1.Machine) bool { return len(all) == size-1 })
	left := m.launchTimes()
	gone := 0
	for id, launch := range instances {
		if now, found := left[id]; !found {
			gone++
		} else if now != launch {
			t.Errorf("instance %s: got launch time %s, want %s", id, now, launch)
		}
	}
	if len(left) != size-1 || gone > 2 {
		t.Errorf("got %d instances and %d gone ones, want %d and at most 2", len(left), gone, size-1)
	}
}

// wantSame checks that the live instances and the nodes are the same as before the loss, and that the cloud has
// created no other instances.
func (m *machinist) wantSame(when string, instances, nodes map[string]string) {
	m.t.Helper()
	if made := len(m.instances()); made != len(instances) {
		m.t.Errorf("%s: got %d created instances, want %d", when, made, len(instances))
	}
	if now := m.launchTimes(); !maps.Equal(now, instances) {
		m.t.Errorf("%s: got instances %v, want %v", when, now, instances)
	}
	if now := m.servingNodes(); !maps.Equal(now, nodes) {
		m.t.Errorf("%s: got nodes %v, want %v", when, now, nodes)
	}
}

func (m *machinist) launchTimes() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, in := range m.instances() {
		if in.State != simcloud.StateTerminated {
			all[in.ProviderID] = in.LaunchTime.UTC().String()
		}
	}
	return all
}

func (m *machinist) servingNodes() map[string]string {
	m.t.Helper()
	list := &corev1.NodeList{}
	if err := m.target.List(context.Background(), list); err != nil {
		m.t.Fatal(err)
	}
	all := map[string]string{}
	for i := range list.Items {
		node := &list.Items[i]
		all[node.Name] = fmt.Sprint(node.UID, " ", node.Status.NodeInfo.BootID)
		ready := false
		for _, c := range node.Status.Conditions {
			ready = ready || c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		}
		if !ready || node.Spec.Unschedulable {
			m.t.Errorf("node %s: got ready %t, unschedulable %t; want a Ready and schedulable node", node.Name, ready,
				node.Spec.Unschedulable)
		}
	}
	return all
}

func (m *machinist) machineUIDs() map[string]types.UID {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	all := map[string]types.UID{}
	for i := range list.Items {
		all[list.Items[i].Name] = list.Items[i].UID
	}
	return all
}

func (m *machinist) command(args ...string) string {
	m.t.Helper()
	out, err := m.tryCommand(args...)
	if err != nil {
		m.t.Fatalf("machinist %v: %v\n%s", args, err, out)
	}
	return out
}

func (m *machinist) tryCommand(args ...string) (string, error) {
	m.t.Helper()
	args = append(args, "-n", namespace, "--kubeconfig", m.Control.Kubeconfig())
	out, err := exec.Command(filepath.Join(binDir(m.t), "machinist"), args...).CombinedOutput()
	return string(out), err
}
