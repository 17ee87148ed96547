//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
)

const secretLabel = "node-restriction.kubernetes.io/payments"

// withSecretLabel adds a node label that kubelets may not write.
func withSecretLabel(o client.Object) {
	if d, ok := o.(*v1beta1.MachineDeployment); ok {
		d.Spec.Template.Spec.Node.Labels = map[string]string{secretLabel: "true"}
	}
}

func (m *machinist) asKubelet(node string) client.Client {
	return m.asUser("system:node:"+node, "system:nodes")
}

func (m *machinist) readNode(name string) *corev1.Node {
	m.t.Helper()
	node := &corev1.Node{}
	if err := m.target.Get(context.Background(), client.ObjectKey{Name: name}, node); err != nil {
		m.t.Fatal(err)
	}
	return node
}

// Rule applied-template-in-status. An attacker who controls a kubelet may write to the Node of this kubelet. The
// provider must not trust what the kubelet writes.
func TestAttackKubeletEditsNodeAnnotation(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, withSecretLabel)
	machine := m.awaitRunning(1)[0]
	node := m.readNode(machine.Status.NodeRef.Name)
	quarantine := corev1.Taint{Key: "security.example.com/quarantine", Effect: corev1.TaintEffectNoSchedule}
	ctx := context.Background()
	eventually(t, "the node is in quarantine", func() (bool, string) {
		n := m.readNode(node.Name)
		n.Spec.Taints = append(n.Spec.Taints, quarantine)
		n.Labels["node-restriction.kubernetes.io/quarantine"] = "true"
		err := m.target.Update(ctx, n)
		return err == nil, errorText(err)
	})
	honest := m.readNode(node.Name).Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]
	record := `{"labels":{"node-restriction.kubernetes.io/quarantine":"true"},"taints":[{"key":"security.example.com/quarantine","effect":"NoSchedule"}],"inService":true}`
	patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, v1beta1.NodeAnnotationLastAppliedNodeTemplate, record)
	if err := m.asKubelet(node.Name).Patch(ctx, node.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
		t.Fatalf("attack: %v", err)
	}
	eventually(t, "the provider has checked the node", func() (bool, string) {
		got := m.readNode(node.Name).Annotations[v1beta1.NodeAnnotationLastAppliedNodeTemplate]
		return got == honest, got
	})
	after := m.readNode(node.Name)
	if !slices.ContainsFunc(after.Spec.Taints, func(t corev1.Taint) bool { return t.Key == quarantine.Key }) ||
		after.Labels["node-restriction.kubernetes.io/quarantine"] == "" {
		t.Errorf("the node is not in quarantine any more: taints %v, labels %v", after.Spec.Taints, after.Labels)
	}
}

// Rule node-name-from-provider. An attacker who controls a kubelet can choose the provider ID of the Node that the
// kubelet registers.
func TestAttackKubeletClaimsForeignProviderID(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, withSecretLabel)
	hostile := m.awaitRunning(1)[0]
	name := hostile.Status.NodeRef.Name
	kubelet, ctx := m.asKubelet(name), context.Background()

	boot := simcloud.Duration(20 * time.Second)
	m.settings(simcloud.SettingsPatch{BootTime: &boot})
	m.scale(2)
	var victim v1beta1.Machine
	m.await("a booting machine", func(machines []v1beta1.Machine) bool {
		i := slices.IndexFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID != hostile.UID && m.Spec.ProviderID != ""
		})
		if i >= 0 {
			victim = machines[i]
		}
		return i >= 0
	})
	// After the deletion of its Node, the kubelet still has its certificate, and can create the Node again.
	if err := m.target.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
		t.Fatal(err)
	}
	conflicting := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	conflicting.Spec.ProviderID = victim.Spec.ProviderID
	if err := kubelet.Create(ctx, conflicting); err != nil {
		t.Fatalf("attack: %v", err)
	}
	eventually(t, "an event about each machine", func() (bool, string) {
		events := &corev1.EventList{}
		if err := m.control.List(ctx, events, client.InNamespace(namespace)); err != nil {
			return false, err.Error()
		}
		reported := map[string]bool{}
		for _, e := range events.Items {
			if e.Reason == v1beta1.ReasonNodeConflict {
				reported[e.InvolvedObject.Name] = true
			}
		}
		return reported[victim.Name] && reported[hostile.Name], fmt.Sprint(reported)
	})
	// The right node must still be able to join.
	m.await("the correct node of the victim", func(machines []v1beta1.Machine) bool {
		return slices.ContainsFunc(machines, func(m v1beta1.Machine) bool {
			return m.UID == victim.UID && m.Status.Phase == v1beta1.MachineRunning && m.Status.NodeRef.Name != name
		})
	})
	if err := m.target.Get(ctx, client.ObjectKeyFromObject(conflicting), conflicting); err != nil {
		if !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	} else if conflicting.Labels[secretLabel] != "" || conflicting.Labels[v1beta1.NodeLabelMachine] == victim.Name {
		t.Errorf("the conflicting Node got the labels %v", conflicting.Labels)
	}
}

// Rule node-ref-is-no-proof. With the permission to write the status of Machines, an attacker must not be able to
// change Nodes.
func TestAttackForgedNodeRef(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	machine := m.awaitRunning(1)[0]
	ctx := context.Background()
	controlPlane := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "control-plane-1",
		Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	if err := m.target.Create(ctx, controlPlane); err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "etcd"}}
	pod.Spec.NodeName = controlPlane.Name
	pod.Spec.Containers = []corev1.Container{{Name: "etcd", Image: "etcd"}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	if err := m.target.Create(ctx, pod); err != nil {
		t.Fatal(err)
	}
	forge := func() error {
		current := &v1beta1.Machine{}
		if err := m.control.Get(ctx, client.ObjectKeyFromObject(&machine), current); err != nil {
			return client.IgnoreNotFound(err)
		}
		current.Status.NodeRef = &v1beta1.NodeRef{Name: controlPlane.Name, UID: controlPlane.UID}
		current.Status.Instance.NodeName = controlPlane.Name
		err := m.control.Status().Update(ctx, current)
		if apierrors.IsConflict(err) {
			return nil
		}
		return client.IgnoreNotFound(err)
	}
	if err := forge(); err != nil {
		t.Fatal(err)
	}
	m.scale(0)
	m.await("no machine, although its status is forged", func(machines []v1beta1.Machine) bool {
		if err := forge(); err != nil {
			t.Error(err)
		}
		return len(machines) == 0
	})
	after := m.readNode(controlPlane.Name)
	if after.Spec.Unschedulable || after.Spec.ProviderID != "" || after.Labels[v1beta1.NodeLabelMachine] != "" {
		t.Errorf("the node of the control plane was changed: %+v %+v", after.ObjectMeta, after.Spec)
	}
	if err := m.target.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || !pod.DeletionTimestamp.IsZero() {
		t.Errorf("the pod of the control plane was deleted: %v, error %v", pod.DeletionTimestamp, err)
	}
}
