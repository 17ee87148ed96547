package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/nodemark"
)

// foreignNode creates a Node that no Machine has created, with a pod.
func (w *world) foreignNode(name string, change ...func(*corev1.Node)) *corev1.Node {
	w.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOf(w.namespace, name)}}
	node.Spec.ProviderID = "fake://elsewhere/" + node.Name
	for _, f := range change {
		f(node)
	}
	w.create(node)
	w.setNodeReady(node.Name, corev1.ConditionTrue)
	w.podOn(node.Name)
	return w.getNode(node.Name)
}

// The author of a Machine names the Node of an instance that the cloud of the class does not show. In one case, the
// author also changed another field, so that the generation does not show how the provider ID was set.
//
// Rule: node-ref-is-no-proof.
func TestProviderIDInSpecDoesNotReachOtherNodes(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(m *v1beta1.Machine, id string){
		"set after the creation": func(m *v1beta1.Machine, id string) { m.Spec.ProviderID = id },
		"set at the creation":    func(m *v1beta1.Machine, _ string) { m.Spec.Version = "v1.36.3" },
	} {
		for _, forced := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", by force"}[forced], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.class("small", "")
				node := w.foreignNode("control-plane")
				w.createMachine("m", func(m *v1beta1.Machine) {
					set(&m.Annotations, v1beta1.AnnotationPaused, "")
					if name == "set at the creation" {
						m.Spec.ProviderID = node.Spec.ProviderID
					}
				})
				w.reconcile("m")
				w.update("m", func(m *v1beta1.Machine) {
					change(m, node.Spec.ProviderID)
					delete(m.Annotations, v1beta1.AnnotationPaused)
				})
				if forced {
					w.annotate("m", v1beta1.AnnotationForceDelete)
				}
				w.deleteWithoutTouching(node)
			})
		}
	}
}

// The attacker also writes the status, so that the instance seems to be recorded.
//
// Rule: node-ref-is-no-proof.
func TestForgedInstanceInStatusDoesNotReachOtherNodes(t *testing.T) {
	t.Parallel()
	for _, deleted := range []bool{false, true} {
		t.Run(map[bool]string{true: "deleted at once", false: "kept"}[deleted], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			node := w.foreignNode("control-plane")
			w.createUntagged(node.Spec.ProviderID, node.Name)
			w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.ProviderID = node.Spec.ProviderID })
			w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.3" })
			w.writeStatus("m", func(s *v1beta1.MachineStatus) {
				s.Instance = &v1beta1.InstanceStatus{Provider: fakeProvider, State: v1beta1.InstanceRunning, NodeName: node.Name}
				s.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
			})
			if !deleted {
				w.reconcile("m")
			}
			w.delete("m")
			for range 5 {
				if result, err := w.pass("m"); err == nil {
					w.step(result.RequeueAfter)
				}
			}
			after := w.getNode(node.Name)
			if after == nil || after.ResourceVersion != node.ResourceVersion || !w.hasPod("work") {
				t.Errorf("the node was touched: %+v, before %+v", after, node)
			}
		})
	}
}

// A Machine gets the name of an existing Node, and the class builds the provider IDs of Nodes from the names of
// instances.
//
// Rule: node-older-than-instance.
func TestNodeOlderThanItsInstanceIsNotTakenOver(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	if err := w.nodesHave("small", "k3s://<<NODE_NAME>>"); err != nil {
		t.Fatal(err)
	}
	node := w.foreignNode("m", otherID)
	w.step(time.Hour)
	w.createMachine("m", func(m *v1beta1.Machine) {
		m.Spec.Node.Taints = []corev1.Taint{{Key: "evil", Effect: corev1.TaintEffectNoExecute}}
	})
	w.reconcile("m")
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeConflict)
	if !strings.Contains(c.Message, node.Name) || !strings.Contains(c.Message, "another name") {
		t.Errorf("the condition does not say what to do: %s", c.Message)
	}
	w.wantQuiet("m")
	w.deleteWithoutTouching(node)
}

// The mark of a Node names another existing Machine, which this process may not have in its cache.
//
// Rule: node-ref-is-no-proof.
func TestNodeOfAnotherExistingMachineConflicts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	id := w.get("m").Spec.ProviderID
	w.createMachine("other", func(m *v1beta1.Machine) { m.Spec.ProviderID = id })
	w.node("m", true, func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.NodeAnnotationMachine: "other",
			v1beta1.NodeAnnotationClusterNamespace: w.namespace, v1beta1.NodeAnnotationInstance: nodemark.Mark{
				ClusterID: "cluster", Provider: fakeProvider, ProviderID: id}.String()}
	})
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeConflict)
	if !strings.Contains(c.Message, w.namespace+"/other") {
		t.Errorf("the condition does not name the other machine: %s", c.Message)
	}
}

// A Node with the mark of a former cluster belongs to the Machine that adopted its instance.
//
// Rule: node-ref-is-no-proof.
func TestNodeWithMarkOfFormerClusterIsAccepted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	if err := w.nodesHave("small", "k3s://<<NODE_NAME>>"); err != nil {
		t.Fatal(err)
	}
	w.createMachine("m")
	w.reconcile("m")
	id := w.get("m").Spec.ProviderID
	node := w.node("m", true, otherID, func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.NodeAnnotationMachine: "m",
			v1beta1.NodeAnnotationClusterNamespace: w.namespace, v1beta1.NodeAnnotationInstance: nodemark.Mark{
				ClusterID: "former", Provider: fakeProvider, ProviderID: id}.String()}
	})
	w.reconcile("m")
	if ref := w.get("m").Status.NodeRef; ref == nil || ref.Name != node.Name {
		t.Errorf("the node is not accepted: %+v", ref)
	}
}

// The conflict with another Machine ends when that Machine is deleted.
//
// Rule: node-ref-is-no-proof.
func TestConflictEndsWithTheOtherMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	if err := w.nodesHave("small", "k3s://<<NODE_NAME>>"); err != nil {
		t.Fatal(err)
	}
	w.createMachine("m")
	w.reconcile("m")
	w.createMachine("other", func(m *v1beta1.Machine) {
		m.Spec.ProviderID = "k3s://" + nodeNameOf(w.namespace, "m")
		m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""}
	})
	node := w.node("m", true, otherID, func(n *corev1.Node) {
		n.Annotations = map[string]string{v1beta1.NodeAnnotationMachine: "other",
			v1beta1.NodeAnnotationClusterNamespace: w.namespace}
	})
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeConflict)
	w.update("other", func(m *v1beta1.Machine) { m.Finalizers = nil })
	w.delete("other")
	w.reconcile("m")
	if ref := w.get("m").Status.NodeRef; ref == nil || ref.Name != node.Name {
		t.Errorf("the node is still not accepted: %+v", w.get("m").Status.Conditions)
	}
}
