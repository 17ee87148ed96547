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

// The data of a control cluster is lost, and with it every UID. From a backup the same fleet is there again: with the
// same instances, none made and none deleted, while their Nodes serve; and Machinist works on.
//
// Rule: adoption-by-former-identity.
func TestAFleetIsRestoredAfterItsControlClusterWasLost(t *testing.T) {
	t.Parallel()
	const size = 50
	m := start(t, stack.Options{SeparateTarget: true})
	m.quick()
	m.fleet(size, nil)
	m.running(size)
	instances, nodes := m.launches(), m.serving()
	if len(instances) != size || len(nodes) != size {
		t.Fatalf("%d instances, %d nodes", len(instances), len(nodes))
	}
	uids := m.uidsOfMachines()

	file := filepath.Join(t.TempDir(), "fleet.yaml")
	contains(t, m.command("backup", "-A", "-f", file), "50 machines of cluster ")
	former := regexp.MustCompile(`of cluster (\S+)\.`).FindStringSubmatch(m.command("backup", "-A", "-f", file+"2"))[1]
	if err := m.LoseControlCluster(t.Context()); err != nil {
		t.Fatal(err)
	}
	if machines := m.await("no machine", func(all []v1beta1.Machine) bool { return true }); len(machines) > 0 {
		t.Fatalf("%d machines survived the loss", len(machines))
	}
	if out, err := m.tryCommand("restore", "-f", file, "--from-cluster=another"); err == nil {
		t.Errorf("restored from a cluster of another name:\n%s", out)
	}

	t.Log(m.command("restore", "-f", file, "--from-cluster="+former))
	m.running(size)
	m.same("after the restore", instances, nodes)
	for name, uid := range m.uidsOfMachines() {
		if uid == uids[name] {
			t.Errorf("machine %s has the UID that it had: nothing was lost", name)
		}
	}
	m.kubectl("wait", "md/workers", "--for=condition=Ready", "--timeout=60s")
	contains(t, m.command("restore", "-f", file, "--from-cluster="+former), "50 existed already")
	m.same("after restoring again", instances, nodes)

	t.Log("Machinist works on: one more, and one less, is one instance of each")
	m.scale(size + 1)
	m.running(size + 1)
	m.scale(size - 1)
	m.await("two machines less", func(all []v1beta1.Machine) bool { return len(all) == size-1 })
	left := m.launches()
	gone := 0
	for id, launch := range instances {
		if now, found := left[id]; !found {
			gone++
		} else if now != launch {
			t.Errorf("instance %s was launched at %s, and before at %s", id, now, launch)
		}
	}
	if len(left) != size-1 || gone > 2 {
		t.Errorf("%d instances are left, %d of those before are gone", len(left), gone)
	}
}

// same checks that the cloud and the target cluster have what they had, and that nothing else was ever made.
func (m *machinist) same(when string, instances, nodes map[string]string) {
	m.t.Helper()
	if made := len(m.instances()); made != len(instances) {
		m.t.Errorf("%s the cloud has made %d instances, before %d", when, made, len(instances))
	}
	if now := m.launches(); !maps.Equal(now, instances) {
		m.t.Errorf("%s the instances are %v, not %v", when, now, instances)
	}
	if now := m.serving(); !maps.Equal(now, nodes) {
		m.t.Errorf("%s the nodes are %v, not %v", when, now, nodes)
	}
}

// launches returns when each live instance was launched.
func (m *machinist) launches() map[string]string {
	m.t.Helper()
	all := map[string]string{}
	for _, in := range m.instances() {
		if in.State != simcloud.StateTerminated {
			all[in.ProviderID] = in.LaunchTime.UTC().String()
		}
	}
	return all
}

// serving returns the UID and the boot of each Node, all of which have to be Ready and schedulable.
func (m *machinist) serving() map[string]string {
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
			m.t.Errorf("node %s: ready %t, unschedulable %t", node.Name, ready, node.Spec.Unschedulable)
		}
	}
	return all
}

func (m *machinist) uidsOfMachines() map[string]types.UID {
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

// command runs the command line, which has to succeed, and returns what it wrote.
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
