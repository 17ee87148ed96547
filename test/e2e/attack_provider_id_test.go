//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/manifests"
)

// foreignNode creates a Node that does not belong to a machine, and a pod on this Node. The returned function fails
// the test if the Node was changed or the pod was deleted.
func (m *machinist) foreignNode(name, providerID string) (wantUntouched func()) {
	m.t.Helper()
	ctx := context.Background()
	before := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.NodeSpec{ProviderID: providerID}}
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "work-" + name}}
	pod.Spec.NodeName = name
	pod.Spec.Containers = []corev1.Container{{Name: "work", Image: "work"}}
	pod.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	for _, o := range []client.Object{before, pod} {
		if err := m.target.Create(ctx, o); err != nil {
			m.t.Fatal(err)
		}
	}
	return func() {
		m.t.Helper()
		after := m.readNode(name)
		if after.UID != before.UID || after.Spec.Unschedulable || after.Labels[v1beta1.NodeLabelMachine] != "" ||
			after.Annotations[v1beta1.NodeAnnotationInstance] != "" {
			m.t.Errorf("node %s was changed: %+v %+v", name, after.ObjectMeta, after.Spec)
		}
		for _, taint := range after.Spec.Taints {
			if taint.Key == "evil" {
				m.t.Errorf("node %s has the taint %+v", name, taint)
			}
		}
		if err := m.target.Get(ctx, client.ObjectKeyFromObject(pod), pod); err != nil || !pod.DeletionTimestamp.IsZero() {
			m.t.Errorf("the pod of node %s was deleted: %v, error %v", name, pod.DeletionTimestamp, err)
		}
	}
}

func (m *machinist) awaitMachineGone(machine *v1beta1.Machine) {
	m.t.Helper()
	eventually(m.t, "the machine of the attacker is gone", func() (bool, string) {
		err := m.control.Get(context.Background(), client.ObjectKeyFromObject(machine), machine)
		return apierrors.IsNotFound(err), fmt.Sprintf("%v %+v", err, machine.Status.Conditions)
	})
}

// A tenant may write Machines. The tenant sets the provider ID of a Machine to the ID of a Node of the control plane,
// whose instance the cloud of the class does not show, and deletes the Machine. The policy must refuse the provider ID.
// Even without the policies, the Node must stay in service and keep its pods.
//
// Rules: provider-id-needs-permission, node-ref-is-no-proof.
func TestAttackTenantNamesForeignProviderID(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	const id = "sim://sim-1/sim-1a/i-control-plane-1"
	wantUntouched := m.foreignNode("control-plane-1", id)
	c := m.asFleetAuthor()
	paused := func(name string) *v1beta1.Machine {
		return &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
			Finalizers: []string{v1beta1.MachineFinalizer}, Annotations: map[string]string{v1beta1.AnnotationPaused: ""}},
			Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}}}
	}
	setID := func(machine *v1beta1.Machine, how ...client.PatchOption) error {
		patch := []byte(`{"spec":{"providerID":"` + id + `"}}`)
		return c.Patch(ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch), how...)
	}
	thief := paused("thief")
	m.wantAllowed("a machine without a provider ID", c.Create(ctx, thief))
	m.wantDeniedBy("provider-id", "the provider ID of another node", setID(thief))
	created := paused("created")
	created.Spec.ProviderID = id
	if err := c.Create(ctx, created.DeepCopy()); err == nil || !strings.Contains(err.Error(), "spec.providerID") {
		t.Errorf("got error %v, want a rejection of spec.providerID by the webhook", err)
	}

	for _, admission := range append([]client.Object{manifests.ManagerWebhook("")}, manifests.Policies()...) {
		if err := m.control.Delete(ctx, admission); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the policies are no longer in force", func() (bool, string) {
		err := setID(thief, client.DryRunAll)
		return err == nil, errorText(err)
	})
	m.wantAllowed("the provider ID without the policies", setID(thief))
	m.wantAllowed("a machine with a provider ID", c.Create(ctx, created))
	// Another change hides that the machine was created with its provider ID.
	for machine, patch := range map[*v1beta1.Machine]string{
		thief:   `{"metadata":{"annotations":null}}`,
		created: `{"metadata":{"annotations":null},"spec":{"version":"v1.36.3"}}`,
	} {
		m.wantAllowed("the deletion", c.Delete(ctx, machine))
		m.wantAllowed("the end of the pause", c.Patch(ctx, machine, client.RawPatch(types.MergePatchType, []byte(patch))))
		m.awaitMachineGone(machine)
	}
	wantUntouched()
}

// A tenant creates a Machine with the name of an existing Node. The class builds the provider IDs of Nodes from the
// names of instances, as for k3s. The Machine must not become the Machine of this Node.
//
// Rule: node-older-than-instance.
func TestAttackTenantTakesNameOfExistingNode(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(0, func(o client.Object) {
		if class, ok := o.(*v1beta1.MachineClass); ok {
			class.Spec.NodeProviderID = "k3s://<<NODE_NAME>>"
		}
	})
	wantUntouched := m.foreignNode("server-1", "k3s://server-1")
	created := time.Now()
	eventually(t, "the next second, because creation times have no fractions", func() (bool, string) {
		return time.Now().Unix() > created.Unix(), ""
	})
	thief := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "server-1"},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}, Version: "v1.36.3"}}
	thief.Spec.Node.Taints = []corev1.Taint{{Key: "evil", Effect: corev1.TaintEffectNoExecute}}
	c := m.asFleetAuthor()
	m.wantAllowed("the machine", c.Create(ctx, thief))
	eventually(t, "the machine reports the conflict", func() (bool, string) {
		if err := m.control.Get(ctx, client.ObjectKeyFromObject(thief), thief); err != nil {
			return false, err.Error()
		}
		cond := meta.FindStatusCondition(thief.Status.Conditions, v1beta1.ConditionRegistered)
		return cond != nil && cond.Reason == v1beta1.ReasonNodeConflict && strings.Contains(cond.Message, "server-1"),
			fmt.Sprint(thief.Status.Conditions)
	})
	m.wantAllowed("the deletion", c.Delete(ctx, thief))
	m.awaitMachineGone(thief)
	wantUntouched()
}
