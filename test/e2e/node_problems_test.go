//go:build e2e

package e2e

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
)

// networkReady is a condition that a network plugin sets, and that the fleet's readiness gate names.
const networkReady corev1.NodeConditionType = "NetworkReady"

// The conditions are those of node-problem-detector and of a network plugin. A machine is Running only after its gate
// is True. A kernel deadlock causes one replacement. A gate that is no longer True causes none.
//
// Rules: readiness-gates-required, unhealthy-after-timeout.
func TestNodeProblemsAndReadinessGates(t *testing.T) {
	t.Parallel()
	const patience = 5 * time.Second
	m := start(t, stack.Options{ManagerArgs: defaultLease})
	m.removeDelays()
	m.createFleet(3, func(o client.Object) {
		if d, ok := o.(*v1beta1.MachineDeployment); ok {
			d.Spec.Template.Spec.Node.ReadinessGates = []v1beta1.NodeReadinessGate{{ConditionType: networkReady}}
		}
	})
	m.createHealthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.UnhealthyNodeConditions = append(c.Spec.UnhealthyNodeConditions, v1beta1.UnhealthyNodeCondition{
			Type: "KernelDeadlock", Status: corev1.ConditionTrue, Timeout: metav1.Duration{Duration: patience},
		})
	})
	waits := func(o v1beta1.Machine) bool {
		c := meta.FindStatusCondition(o.Status.Conditions, v1beta1.ConditionReady)
		return o.Status.NodeRef != nil && c != nil && c.Reason == v1beta1.ReasonWaitingForReadinessGates &&
			strings.Contains(c.Message, string(networkReady))
	}
	waiting := m.await("three machines that wait for their readiness gate", func(machines []v1beta1.Machine) bool {
		return len(machines) == 3 && !slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return !waits(o) || o.Status.Phase != v1beta1.MachineProvisioned
		})
	})
	for i := range waiting {
		m.setNodeCondition(waiting[i], networkReady, corev1.ConditionTrue)
		m.setNodeCondition(waiting[i], "KernelDeadlock", corev1.ConditionFalse)
	}
	before := m.awaitRunning(3)

	t.Log("the network of one node fails, and the kernel of another node has a deadlock")
	m.setNodeCondition(before[1], networkReady, corev1.ConditionFalse)
	m.setNodeCondition(before[0], "KernelDeadlock", corev1.ConditionTrue)
	replacement := m.await("the replacement of machine "+before[0].Name, func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return waits(o) && o.Status.Phase == v1beta1.MachineProvisioned
		})
	})
	if mark := m.markEvent(before[0].UID); !strings.Contains(mark.note, "KernelDeadlock") {
		t.Errorf("event of the mark: got %q, want a message that names KernelDeadlock", mark.note)
	}
	for i := range replacement {
		if replacement[i].Status.Phase == v1beta1.MachineProvisioned {
			m.setNodeCondition(replacement[i], networkReady, corev1.ConditionTrue)
		}
	}
	after := m.awaitOneReplaced(before, before[0])
	i := slices.IndexFunc(after, func(o v1beta1.Machine) bool { return o.UID == before[1].UID })
	if !waits(after[i]) {
		t.Errorf("machine %s is Ready, but the network of its node does not work: %v", after[i].Name, after[i].Status.Conditions)
	}
}

func (m *machinist) setNodeCondition(of v1beta1.Machine, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	m.t.Helper()
	node := m.readNode(of.Status.NodeRef.Name)
	before := node.DeepCopy()
	node.Status.Conditions = append(slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == kind
	}), corev1.NodeCondition{Type: kind, Status: status, Reason: "Test", LastTransitionTime: metav1.Now()})
	if err := m.target.Status().Patch(context.Background(), node, client.StrategicMergeFrom(before)); err != nil {
		m.t.Fatalf("set condition %s of node %s: %v", kind, node.Name, err)
	}
}
