package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/nodemark"
	"machinist.dev/machinist/pkg/provider"
)

// withNodeName gives a Node a name that differs from the Node name of its instance in the cloud.
func withNodeName(name string) func(*corev1.Node) { return func(n *corev1.Node) { n.Name = name } }

// A hostile kubelet sets the provider ID of another instance on its Node. The kubelet gets no access to the machine
// of that instance, and does not prevent the registration of the right Node.
//
// Rule: node-name-from-provider.
func TestNodeWithTheProviderIDOfAnotherMachineConflicts(t *testing.T) {
	t.Parallel()
	t.Run("the provider reports another node name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.running("hostile")
		w.createMachine("victim", func(m *v1beta1.Machine) {
			m.Spec.Node.Labels = map[string]string{"node-restriction.kubernetes.io/payments": "true"}
		})
		w.reconcile("victim")
		// The hostile kubelet deletes its Node, and registers again with the provider ID of the other instance.
		hostile := nodeNameOf(w.namespace, "hostile")
		w.dropNode(w.get("hostile"))
		w.events.take()
		w.node("victim", true, withNodeName(hostile))
		w.reconcile("victim")
		m := w.get("victim")
		w.wantCondition(m, v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
		if got := w.getNode(hostile); len(got.Labels) > 0 && got.Labels["node-restriction.kubernetes.io/payments"] != "" ||
			len(got.Spec.Taints) == 0 {
			t.Errorf("the conflicting Node has the labels %v and the taints %v", got.Labels, got.Spec.Taints)
		}
		events := w.events.take()
		want(t, "events", reasons(events), v1beta1.ReasonNodeConflict, v1beta1.ReasonNodeConflict)
		if !strings.Contains(strings.Join(events, "\n"), "hostile") ||
			!strings.Contains(strings.Join(events, "\n"), "victim") {
			t.Errorf("the events are not about both: %q", events)
		}
		w.wantQuiet("victim")
		w.node("victim", true)
		w.reconcile("victim")
		m = w.get("victim")
		w.wantPhase(m, v1beta1.MachineRunning)
		if m.Status.NodeRef.Name != nodeNameOf(w.namespace, "victim") {
			t.Errorf("paired with %s", m.Status.NodeRef.Name)
		}
		w.wantRest("victim")

		w.podOn(hostile)
		w.delete("victim")
		w.untilGone("victim")
		if got := w.getNode(hostile); got == nil || got.Spec.Unschedulable {
			t.Error("the deletion touched the conflicting Node")
		}
	})
	t.Run("the node joined with another token", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", joinsWithToken)
		user := w.launched("m")
		w.certified("conflicting", "system:bootstrap:zzzzz0")
		w.node("m", true, withNodeName(nodeNameOf(w.namespace, "conflicting")))
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
		w.certified("m", user)
		w.node("m", true)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	})
	t.Run("the node has the name of another machine", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", "")
		other := w.running("other")
		w.dropNode(other)
		w.createMachine("m")
		w.reconcile("m")
		w.node("m", true, withNodeName(other.Status.NodeRef.Name))
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
	})
}

// deleteWithoutTouching deletes the Machine m. The test fails if the deletion changes the given Node of another Machine
// or evicts the pod on it.
func (w *world) deleteWithoutTouching(before *corev1.Node) {
	w.t.Helper()
	w.delete("m")
	w.untilGone("m")
	after := w.getNode(before.Name)
	if after == nil || after.ResourceVersion != before.ResourceVersion {
		w.t.Fatalf("the node was touched: %+v, before %+v", after, before)
	}
	if !w.hasPod("work") {
		w.t.Error("the pod of the other node was evicted")
	}
}

// A client that may write the status of Machines must not get access to the Nodes of other Machines through
// status.nodeRef.
//
// Rule: node-ref-is-no-proof.
func TestForgedNodeRefDoesNotReachOtherNodes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Node){
		"of another instance":   ofAnotherInstance,
		"without a provider ID": withoutProviderID,
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", deleted at once"}[deleted], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.class("small", "")
				m := w.running("m")
				own := m.Status.NodeRef.Name
				otherNode := nodeNameOf(w.namespace, "control-plane")
				w.node("m", true, withNodeName(otherNode), change)
				w.podOn(otherNode)
				before := w.getNode(otherNode)
				m.Status.NodeRef = &v1beta1.NodeRef{Name: otherNode, UID: before.UID}
				m.Status.Instance.NodeName = otherNode
				if err := w.api.Status().Update(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				if !deleted {
					w.reconcile("m")
				}
				w.deleteWithoutTouching(before)
				if !deleted && w.getNode(own) != nil {
					t.Error("the machine's own node remains")
				}
			})
		}
	}
}

// If the class sets the provider IDs of Nodes, the status of the Machine contains the provider ID of the Node. A client
// that may write the status must not get access to the Nodes of other Machines.
//
// Rule: node-ref-is-no-proof.
func TestForgedNodeProviderIDDoesNotReachOtherNodes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Node){
		"without a mark": func(*corev1.Node) {},
		"with the mark of its instance": func(n *corev1.Node) {
			n.Annotations = map[string]string{v1beta1.NodeAnnotationInstance: nodemark.Mark{ClusterID: "cluster",
				Provider: fakeProvider, ProviderID: n.Spec.ProviderID}.String()}
		},
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", deleted at once"}[deleted], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.class("small", "")
				w.running("m")
				otherNode := nodeNameOf(w.namespace, "control-plane")
				w.node("m", true, withNodeName(otherNode), func(n *corev1.Node) { n.Spec.ProviderID = "fake:///" + n.Name }, change)
				w.podOn(otherNode)
				before := w.getNode(otherNode)
				w.writeStatus("m", func(s *v1beta1.MachineStatus) {
					s.NodeRef = &v1beta1.NodeRef{Name: otherNode, UID: before.UID}
					s.Instance.NodeName, s.Instance.NodeProviderID = otherNode, before.Spec.ProviderID
				})
				if !deleted {
					w.reconcile("m")
				}
				w.deleteWithoutTouching(before)
			})
		}
	}
}

// A client writes the name and the provider ID of a Node into the status of a Machine in another namespace. The Machine
// to which the Node belongs keeps the Node, and deletes it at its end.
//
// Rule: status-claims-end-at-namespace.
func TestForgedStatusOfOtherNamespaceTakesNoNode(t *testing.T) {
	t.Parallel()
	for name, kind := range map[string]struct {
		class  string
		change []func(*corev1.Node)
	}{
		"with its provider ID":     {"", nil},
		"without a provider ID":    {joinsWithToken, []func(*corev1.Node){withoutProviderID}},
		"with another provider ID": {joinsWithToken, []func(*corev1.Node){otherID}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			others := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "attacker-"}}
			w.create(others)
			w.effects.otherNamespaces = []string{others.Name}
			w.class("small", kind.class)
			forged := w.createMachine("forged", func(m *v1beta1.Machine) { m.Namespace, m.Finalizers = others.Name, nil })
			w.step(time.Second)
			forge := func(node *corev1.Node) {
				before := forged.DeepCopy()
				forged.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
				forged.Status.Instance = &v1beta1.InstanceStatus{Provider: fakeProvider, NodeName: node.Name,
					NodeProviderID: node.Spec.ProviderID}
				if err := w.api.Status().Patch(t.Context(), forged, client.MergeFrom(before)); err != nil {
					t.Fatal(err)
				}
			}
			if kind.class != "" {
				w.certified("m", w.launched("m"))
			} else {
				w.createMachine("m")
				w.reconcile("m")
			}
			node := w.node("m", true, kind.change...)
			forge(node)
			w.reconcile("m")
			if m := w.get("m"); name != "with another provider ID" &&
				(m.Status.NodeRef == nil || m.Status.NodeRef.UID != node.UID) {
				t.Fatalf("the machine has no node: %s", summaryOf(m))
			}
			forge(w.getNode(node.Name))
			w.restart()
			w.wantQuiet("m")
			w.delete("m")
			w.untilGone("m")
			w.wantNothingLeft("m")
		})
	}
}

// Rule: node-ref-is-no-proof.
func TestAMachineWithAForgedNodeRefStillJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.runUntil("m", "has its instance", func() bool { return w.get("m").Spec.ProviderID != "" })
	other := nodeNameOf(w.namespace, "other")
	w.node("m", true, withNodeName(other), ofAnotherInstance)
	m := w.get("m")
	m.Status.NodeRef = &v1beta1.NodeRef{Name: other, UID: w.getNode(other).UID}
	if err := w.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	if ref := w.get("m").Status.NodeRef; ref != nil {
		t.Errorf("nodeRef is still %s, so that the machine's own kubelet gets no certificate", ref.Name)
	}
}

func (w *world) hasPod(name string) bool {
	w.t.Helper()
	pod := &corev1.Pod{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, pod)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil && pod.DeletionTimestamp.IsZero()
}
