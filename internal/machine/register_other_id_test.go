package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// otherID sets a provider ID of the Node in the form that a distribution uses.
func otherID(n *corev1.Node) { n.Spec.ProviderID = "k3s://" + n.Name }

// Rule: node-with-other-id.
func TestANodeWithAnotherProviderIDIsReportedDrainedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.certified("m", w.launched("m"))
	node := w.node("m", true, otherID)
	w.reconcile("m")
	m := w.get("m")
	c := w.wantCondition(m, v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonNodeConflict)
	for _, part := range []string{node.Name, node.Spec.ProviderID, m.Spec.ProviderID} {
		if !strings.Contains(c.Message, part) {
			t.Errorf("the condition does not name %s: %s", part, c.Message)
		}
	}
	w.wantQuiet("m")
	w.step(v1beta1.DefaultCreationTimeout)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)

	w.delete("m")
	w.effects.clear()
	w.untilGone("m")
	if writes := w.effects.since("API Node"); len(writes) != 2 || writes[0] != "API Node patch" ||
		writes[1] != "API Node delete" {
		t.Errorf("writes to the node: %q; want a cordon and the deletion", writes)
	}
	w.wantNothingLeft("m")
}

// The new process finds the Node by its certificate.
//
// Rule: node-with-other-id.
func TestANodeWithAnotherProviderIDIsFoundAfterARestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.certified("m", w.launched("m"))
	w.node("m", true, otherID)
	w.cloud.Shutdown = time.Minute
	w.delete("m")
	w.reconcile("m")
	w.restart()
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// Rule: node-with-other-id.
func TestANodeWithAnotherProviderIDIsNotTouchedWithoutProof(t *testing.T) {
	t.Parallel()
	for name, arrange := range map[string]func(w *world, user string){
		"without a certificate": func(w *world, _ string) { w.node("m", true, otherID) },
		"by another token": func(w *world, _ string) {
			w.certified("m", "system:bootstrap:zzzzz0")
			w.node("m", true, otherID)
		},
		"of another machine": func(w *world, user string) {
			w.certified("m", user)
			node := w.node("m", true, otherID)
			w.createMachine("other", func(m *v1beta1.Machine) { m.Spec.ProviderID = node.Spec.ProviderID })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", joinsWithToken)
			arrange(w, w.launched("m"))
			w.step(time.Minute)
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, metav1.ConditionFalse, v1beta1.ReasonWaitingForNode)
			w.delete("m")
			w.untilGone("m")
			if node := w.getNode(nodeNameOf(w.namespace, "m")); node == nil || node.Spec.Unschedulable {
				t.Error("a node that is not proven to be the machine's was touched")
			}
		})
	}
}
