package machine

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// named gives a Node another name than its instance has.
func named(name string) func(*corev1.Node) { return func(n *corev1.Node) { n.Name = name } }

// A kubelet says which provider ID its Node has. One that says another's gets nothing that is the other's, and does
// not keep the true Node from joining.
//
// Rule: node-name-from-provider.
func TestANodeWithAnothersProviderIDIsARival(t *testing.T) {
	t.Parallel()
	t.Run("where the provider tells the name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.running("hostile")
		w.born("victim", func(m *v1beta1.Machine) {
			m.Spec.Node.Labels = map[string]string{"node-restriction.kubernetes.io/payments": "true"}
		})
		w.reconcile("victim")
		// Its kubelet deletes its Node, and registers with the other's provider ID.
		hostile := nodeNameOf(w.namespace, "hostile")
		w.dropNode(w.get("hostile"))
		w.events.take()
		w.node("victim", true, named(hostile))
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
	t.Run("where it joined with another token", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", joinsWithToken)
		user := w.launched("m")
		w.certified("conflicting", "system:bootstrap:zzzzz0")
		w.node("m", true, named(nodeNameOf(w.namespace, "conflicting")))
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
		w.certified("m", user)
		w.node("m", true)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	})
	t.Run("where it has the name of another machine", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", "")
		other := w.running("other")
		w.dropNode(other)
		w.born("m")
		w.reconcile("m")
		w.node("m", true, named(other.Status.NodeRef.Name))
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
	})
}

// Who may write the status of Machines does not get at Nodes that way, whatever they have or lack.
//
// Rule: node-ref-is-no-proof.
func TestAForgedNodeRefReachesNoOtherNode(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*corev1.Node){
		"of another instance":   someone,
		"without a provider ID": nameless,
	} {
		for _, deleted := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", deleted at once"}[deleted], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.class("small", "")
				m := w.running("m")
				own := m.Status.NodeRef.Name
				unsupportedSchema := nodeNameOf(w.namespace, "control-plane")
				w.node("m", true, named(unsupportedSchema), change)
				w.podOn(unsupportedSchema)
				before := w.getNode(unsupportedSchema)
				m.Status.NodeRef = &v1beta1.NodeRef{Name: unsupportedSchema, UID: before.UID}
				m.Status.Instance.NodeName = unsupportedSchema
				if err := w.api.Status().Update(t.Context(), m); err != nil {
					t.Fatal(err)
				}
				if !deleted {
					w.reconcile("m")
				}
				w.delete("m")
				w.untilGone("m")
				after := w.getNode(unsupportedSchema)
				if after == nil || after.ResourceVersion != before.ResourceVersion {
					t.Fatalf("the node was touched: %+v, before %+v", after, before)
				}
				if !w.hasPod("work") {
					t.Error("its pod was evicted")
				}
				if !deleted && w.getNode(own) != nil {
					t.Error("the machine's own node is left")
				}
			})
		}
	}
}

// The cache is not late where it shows the very Node that is written down: a Node of another instance stays another's.
//
// Rule: node-ref-is-no-proof.
func TestAMachineWithAForgedNodeRefStillJoins(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.born("m")
	w.until("m", "has its instance", func() bool { return w.get("m").Spec.ProviderID != "" })
	other := nodeNameOf(w.namespace, "other")
	w.node("m", true, named(other), someone)
	m := w.get("m")
	m.Status.NodeRef = &v1beta1.NodeRef{Name: other, UID: w.getNode(other).UID}
	if err := w.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	if ref := w.get("m").Status.NodeRef; ref != nil {
		t.Errorf("the machine is still paired with %s, so that its own kubelet gets no certificate", ref.Name)
	}
}

// hasPod reports whether a pod is there and nobody has asked it to end.
func (w *world) hasPod(name string) bool {
	w.t.Helper()
	pod := &corev1.Pod{}
	err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: name}, pod)
	if client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	return err == nil && pod.DeletionTimestamp.IsZero()
}
