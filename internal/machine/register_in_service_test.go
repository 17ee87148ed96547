package machine

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// evicting is a startup taint with the effect NoExecute, which evicts all pods.
var evicting = corev1.Taint{Key: "network.example.com/not-ready", Effect: corev1.TaintEffectNoExecute}

func startsWith(taints ...corev1.Taint) func(*v1beta1.Machine) {
	return func(m *v1beta1.Machine) { m.Spec.Node.StartupTaints = taints }
}

// Rule no-startup-taints-in-service: only a new Node gets startup taints, even if its kubelet is Ready at once.
func TestWhichNodesAreInService(t *testing.T) {
	noon := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	launched := func(reason string) func(*v1beta1.Machine, *corev1.Node) {
		return func(m *v1beta1.Machine, _ *corev1.Node) {
			meta.SetStatusCondition(&m.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionLaunched,
				Status: metav1.ConditionTrue, Reason: reason})
		}
	}
	registered := func(after time.Duration) func(*v1beta1.Machine, *corev1.Node) {
		return func(_ *v1beta1.Machine, n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(noon.Add(after)) }
	}
	ready := func(_ *v1beta1.Machine, n *corev1.Node) {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	}
	uninitialized := func(_ *v1beta1.Machine, n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, uninitializedTaint)
	}
	phase := func(p v1beta1.MachinePhase) func(*v1beta1.Machine, *corev1.Node) {
		return func(m *v1beta1.Machine, _ *corev1.Node) { m.Status.Phase = p }
	}
	paired := func(m *v1beta1.Machine, _ *corev1.Node) {
		m.Status.NodeRef = &v1beta1.NodeRef{Name: "n", UID: "before"}
	}
	ours, adopted := launched(v1beta1.ReasonInstanceLaunched), launched(v1beta1.ReasonInstanceAdopted)
	type changes []func(*v1beta1.Machine, *corev1.Node)
	for name, test := range map[string]struct {
		is   changes
		want bool
	}{
		"a new Node":                                 {changes{ours, registered(time.Minute), uninitialized}, false},
		"a new Node without a taint":                 {changes{ours, registered(time.Minute)}, false},
		"a new Node that is Ready already":           {changes{ours, registered(time.Minute), uninitialized, ready}, false},
		"a new Node, Ready and without a taint":      {changes{ours, registered(time.Minute), ready}, false},
		"created in the same second as the machine":  {changes{ours, registered(0), ready}, false},
		"of an adopted instance":                     {changes{adopted, registered(-time.Hour), ready}, true},
		"of an adopted instance, not Ready":          {changes{adopted, registered(-time.Hour)}, true},
		"of an adopted instance, registered again":   {changes{adopted, registered(time.Minute), ready}, true},
		"of an adopted instance that joins only now": {changes{adopted, registered(time.Minute), uninitialized}, false},
		"older than the machine":                     {changes{ours, registered(-time.Second), ready}, true},
		"older than the machine, but with the taint": {changes{ours, registered(-time.Minute), uninitialized}, false},
		"registered again while the machine runs": {changes{ours, registered(time.Hour), paired,
			phase(v1beta1.MachineRunning)}, true},
		"registered again, with the taint": {changes{ours, registered(time.Hour), uninitialized, paired,
			phase(v1beta1.MachineUnhealthy)}, true},
		"registered again during an update in place": {changes{ours, registered(time.Hour), paired,
			phase(v1beta1.MachineUpdating)}, true},
		"of an instance that replaced another": {changes{ours, registered(time.Hour), uninitialized,
			phase(v1beta1.MachineProvisioned)}, false},
		"registered again before the machine ran": {changes{ours, registered(time.Minute), paired,
			phase(v1beta1.MachineProvisioned)}, false},
	} {
		m, n := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon)}}, &corev1.Node{}
		for _, change := range test.is {
			change(m, n)
		}
		p := &pass{machine: m, original: m.DeepCopy()}
		if got := p.inService(n); got != test.want {
			t.Errorf("%s: in service is %v", name, got)
		}
	}
}

// The Node of the adopted instance already runs pods, which startup taints would evict.
//
// Rule: no-startup-taints-in-service.
func TestNodeInServiceGetsNoStartupTaints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	id := w.adoptable()
	node := w.nodeOfAnother(id)
	// The administrator has set a permanent taint on the Node to keep some pods away. The same taint is a startup taint
	// for new Nodes.
	own := w.getNode(node.Name)
	own.Spec.Taints = append(own.Spec.Taints, taint("network", ""))
	if err := w.api.Update(t.Context(), own); err != nil {
		t.Fatal(err)
	}
	w.createMachine("m", withProviderID(id), startsWith(evicting, taint("network", "")), func(m *v1beta1.Machine) {
		m.Spec.Node.Labels = map[string]string{"pool": "db"}
		m.Spec.Node.Taints = []corev1.Taint{taint("dedicated", "db")}
	})
	began := w.clock.Now()
	w.untilPhase("m", v1beta1.MachineRunning)
	within(t, "the time until it runs", w.clock.Since(began), 0, time.Minute)
	n := w.getNode(node.Name)
	if findTaint(n.Spec.Taints, evicting) >= 0 || findTaint(n.Spec.Taints, taint("dedicated", "db")) < 0 ||
		findTaint(n.Spec.Taints, taint("network", "")) < 0 || n.Labels["pool"] != "db" {
		t.Errorf("the node has the labels %v and the taints %v", n.Labels, n.Spec.Taints)
	}
	w.step(24 * time.Hour)
	w.wantRest("m")
}

// Rules startup-taints-once, no-startup-taints-in-service: an adopted instance may join after its adoption, and a new
// Node may be Ready when it is first seen.
func TestNewNodeGetsStartupTaints(t *testing.T) {
	t.Parallel()
	t.Run("adopted before it joined", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		id := w.adoptable()
		w.createMachine("m", withProviderID(id), startsWith(evicting))
		w.untilPhase("m", v1beta1.MachineProvisioned)
		w.wantBlockedByStartupTaint(w.node("m", true, withNodeName(nodeNameOf(w.namespace, "legacy"))))
	})
	t.Run("Ready at once and without the taint", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.createMachine("m", startsWith(evicting))
		w.reconcile("m")
		w.wantBlockedByStartupTaint(w.node("m", true, func(n *corev1.Node) { n.Spec.Taints = nil }))
	})
}

func (w *world) wantBlockedByStartupTaint(node *corev1.Node) {
	w.t.Helper()
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonWaitingForStartupTaints)
	n := w.getNode(node.Name)
	if findTaint(n.Spec.Taints, evicting) < 0 {
		w.t.Errorf("the taints are %v", n.Spec.Taints)
	}
	n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool { return sameTaint(t, evicting) })
	if err := w.api.Update(w.t.Context(), n); err != nil {
		w.t.Fatal(err)
	}
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// The Node of a running machine was deleted by mistake. The pods of the Node may still run.
//
// Rule: no-startup-taints-in-service.
func TestNodeThatRegistersAgainGetsNoStartupTaints(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", startsWith(evicting))
	w.reconcile("m")
	w.wantBlockedByStartupTaint(w.node("m", true))
	w.dropNode(w.get("m"))
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	node := w.node("m", true)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	n := w.getNode(node.Name)
	if findTaint(n.Spec.Taints, evicting) >= 0 || findTaint(n.Spec.Taints, uninitializedTaint) >= 0 {
		t.Errorf("the taints are %v", n.Spec.Taints)
	}
}
