//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// Without a target cluster, a machine becomes Available when its instance runs, and never has a Node.
func TestMachinesBecomeAvailableWithoutTargetCluster(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true})
	m.removeDelays()
	m.createFleet(2, func(o client.Object) {
		// The user data of the example needs a target cluster.
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			s.StringData = map[string]string{v1beta1.DefaultUserDataKey: "#cloud-config\nhostname: <<MACHINE_NAME>>\n"}
		}
	})
	for i, machine := range m.awaitAvailable(2) {
		if machine.Status.NodeRef != nil {
			t.Errorf("machine %s: got node %v, want none", machine.Name, machine.Status.NodeRef)
		}
		for kind, want := range map[string]string{v1beta1.ConditionReady: v1beta1.ReasonMachineReady,
			v1beta1.ConditionRegistered: v1beta1.ReasonNoTargetCluster} {
			if c := meta.FindStatusCondition(machine.Status.Conditions, kind); c == nil || c.Reason != want {
				t.Errorf("machine %d, condition %s: got %v, want reason %s", i, kind, c, want)
			}
		}
	}

	m.scale(4)
	m.awaitAvailable(4)
	m.awaitReplicas(4)

	// A machine that a user deletes is replaced.
	gone := m.awaitAvailable(4)[0]
	if err := m.control.Delete(context.Background(), &gone); err != nil {
		t.Fatalf("delete machine %s: %v", gone.Name, err)
	}
	m.await("four available machines without the deleted one", func(machines []v1beta1.Machine) bool {
		return len(machines) == 4 && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == gone.UID || m.Status.Phase != v1beta1.MachineAvailable
		})
	})

	m.scale(0)
	m.awaitNoMachines()
	m.wantNothingLeft(5)
	if nodes := m.nodes(m.control); len(nodes) != 0 {
		t.Errorf("%d nodes registered: %v", len(nodes), nodes)
	}
	secrets := &corev1.SecretList{}
	if err := m.control.List(context.Background(), secrets, client.InNamespace(metav1.NamespaceSystem)); err != nil {
		t.Fatal(err)
	}
	for _, s := range secrets.Items {
		if s.Type == corev1.SecretTypeBootstrapToken {
			t.Errorf("bootstrap token %s was created without a target cluster", s.Name)
		}
	}
}

// The control cluster contains the Machines, and the target cluster contains the Nodes and tokens of these Machines.
func TestSeparateControlAndTargetClusters(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{SeparateTarget: true})
	m.removeDelays()
	m.createFleet(2, nil)
	check := func(n int) {
		t.Helper()
		machines := m.awaitRunning(n)
		if nodes := m.nodes(m.control); len(nodes) != 0 {
			t.Errorf("%d nodes are in the control cluster: %v", len(nodes), nodes)
		}
		nodes := m.nodes(m.target)
		if len(nodes) != n {
			t.Errorf("got %d nodes in the target cluster for %d machines: %v", len(nodes), n, nodes)
		}
		for i := range machines {
			if ref := machines[i].Status.NodeRef; ref == nil || !slices.Contains(nodes, ref.Name) {
				t.Errorf("machine %s: got node %v, want one of %v", machines[i].Name, ref, nodes)
			}
		}
		duplicates := &v1beta1.MachineList{}
		if err := m.target.List(context.Background(), duplicates); err != nil {
			t.Fatal(err)
		}
		if len(duplicates.Items) != 0 {
			t.Errorf("%d Machines are in the target cluster", len(duplicates.Items))
		}
	}
	check(2)
	m.scale(5)
	check(5)

	// The pods are drained in the target cluster.
	machine := m.awaitRunning(5)[0]
	pod := m.protectedPod("web", machine.Status.NodeRef.Name)
	if err := m.control.Delete(context.Background(), &machine); err != nil {
		t.Fatalf("delete machine %s: %v", machine.Name, err)
	}
	m.await("a drain that the budget blocks", func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == machine.UID && blockedBy(&m, pod.Name, "web")
		})
	})
	m.liftBudget("web")
	m.await("the drained machine to be gone", func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool { return m.UID == machine.UID })
	})
	check(5)

	m.scale(1)
	check(1)
	if err := m.control.Delete(context.Background(), m.deployment()); err != nil {
		t.Fatalf("delete the deployment: %v", err)
	}
	m.awaitNoMachines()
	m.wantNothingLeft(6)
	if nodes := m.nodes(m.target); len(nodes) != 0 {
		t.Errorf("nodes are left: %v", nodes)
	}
}

func (m *machinist) awaitAvailable(n int) []v1beta1.Machine {
	m.t.Helper()
	return m.await(fmt.Sprintf("%d available machines", n), func(machines []v1beta1.Machine) bool {
		return len(machines) == n && !slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.Status.Phase != v1beta1.MachineAvailable ||
				!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
		})
	})
}

func (m *machinist) awaitReplicas(n int32) {
	m.t.Helper()
	eventually(m.t, "the deployment counts its machines", func() (bool, string) {
		d := m.deployment()
		return d.Status.ReadyReplicas == n && d.Status.AvailableReplicas == n, d.Name
	})
}

func (m *machinist) nodes(c client.Client) []string {
	m.t.Helper()
	list := &corev1.NodeList{}
	if err := c.List(context.Background(), list); err != nil {
		m.t.Fatalf("list nodes: %v", err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// wantNothingLeft requires that no instance is live and that the cloud has created the given number of instances in
// total.
func (m *machinist) wantNothingLeft(made int) {
	m.t.Helper()
	if n := m.countLive(); n != 0 {
		m.t.Errorf("%d instances are left", n)
	}
	if n := len(m.instances()); n != made {
		m.t.Errorf("the cloud created %d instances, want %d", n, made)
	}
}
