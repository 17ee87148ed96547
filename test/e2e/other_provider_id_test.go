//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/simcloud"
)

// taintOfCloudControllers is the taint with which a kubelet registers a Node if it uses an external cloud provider. The
// cloud controller writes the provider ID and removes the taint.
const taintOfCloudControllers = "node.cloudprovider.kubernetes.io/uninitialized"

// A distribution's cloud controller writes provider IDs in its own format. The machine reports both IDs. On deletion,
// its Node must be drained and deleted although the machine was never Running.
//
// Rule: node-with-other-id.
func TestCloudControllerWritesOtherProviderID(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.settings(simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{NoCloudController: ptr.To(true)}})
	m.createFleet(1, func(o client.Object) {
		if s, ok := o.(*corev1.Secret); ok && s.Name == examples.UserDataSecret {
			s.StringData[v1beta1.DefaultUserDataKey] = strings.Replace(s.StringData[v1beta1.DefaultUserDataKey],
				"registerWithTaints:", "registerWithTaints:\n        - {key: "+taintOfCloudControllers+", effect: NoSchedule}", 1)
		}
	})
	node := m.initializeNode("k3s://")
	machine := m.await("a machine that reports both provider IDs", func(machines []v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machines[0].Status.Conditions, v1beta1.ConditionRegistered)
		return c != nil && c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "k3s://"+node.Name) &&
			strings.Contains(c.Message, machines[0].Spec.ProviderID)
	})[0]

	pod := m.protectedPod("kept", node.Name)
	m.scale(0)
	m.await("a drain that the budget blocks", func(machines []v1beta1.Machine) bool {
		c := meta.FindStatusCondition(machines[0].Status.Conditions, v1beta1.ConditionDrained)
		return !machines[0].DeletionTimestamp.IsZero() && c != nil && c.Status == metav1.ConditionFalse
	})
	if err := m.target.Get(context.Background(), client.ObjectKeyFromObject(pod), pod); err != nil ||
		!pod.DeletionTimestamp.IsZero() || m.countLive() != 1 {
		t.Errorf("got %d live instances, want 1; protected pod: error %v, deleted %v", m.countLive(), err, pod.DeletionTimestamp)
	}
	m.liftBudget("kept")
	m.awaitGone(machine)
	nodes := &corev1.NodeList{}
	if err := m.target.List(context.Background(), nodes); err != nil || len(nodes.Items) != 0 || m.countLive() != 0 {
		t.Errorf("%d nodes and %d instances are left: %v", len(nodes.Items), m.countLive(), err)
	}
}

// initializeNode does what a cloud controller does with the only Node, but sets a provider ID with another scheme.
func (m *machinist) initializeNode(scheme string) (node *corev1.Node) {
	m.t.Helper()
	eventually(m.t, "the cloud controller has initialized a node", func() (bool, string) {
		nodes := &corev1.NodeList{}
		if err := m.target.List(context.Background(), nodes); err != nil || len(nodes.Items) != 1 {
			return false, fmt.Sprintf("%d nodes: %v", len(nodes.Items), err)
		}
		node = &nodes.Items[0]
		node.Spec.ProviderID = scheme + node.Name
		var others []corev1.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != taintOfCloudControllers {
				others = append(others, taint)
			}
		}
		node.Spec.Taints = others
		err := m.target.Update(context.Background(), node)
		return err == nil, fmt.Sprint(err)
	})
	return node
}
