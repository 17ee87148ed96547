package machine

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: node-provider-id-by-class.
func TestNodeProviderID(t *testing.T) {
	in := &provider.Instance{ProviderID: "openstack:///0-1-2", NodeName: "web-1", Region: "eu"}
	for _, tc := range []struct {
		form string
		in   *provider.Instance
		want string
	}{
		{"", in, ""},
		{"k3s://<<NODE_NAME>>", in, "k3s://web-1"},
		{"openstack://<<REGION>>/<<INSTANCE_ID>>", in, "openstack://eu/0-1-2"},
		{"openstack:///<<INSTANCE_ID>>", in, ""}, // This is the provider's own form.
		{"k3s://<<NODE_NAME>>", &provider.Instance{ProviderID: "sim://7"}, ""},
		{"openstack://<<REGION>>/<<INSTANCE_ID>>", &provider.Instance{ProviderID: "openstack:///7"}, ""},
	} {
		if got := NodeProviderID(tc.form, tc.in); got != tc.want {
			t.Errorf("%q: %q, want %q", tc.form, got, tc.want)
		}
	}
}

func (w *world) nodesHave(class, form string) error {
	return w.api.Patch(w.t.Context(), &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace,
		Name: class}}, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"nodeProviderID":"`+form+`"}}`)))
}

// Rule: node-provider-id-by-class.
func TestClassDefinesTheProviderIDsOfItsNodes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	if err := w.nodesHave("small", "k3s://<<NODE_NAME>>"); err != nil {
		t.Fatal(err)
	}
	w.createMachine("m")
	w.reconcile("m")
	if err := w.nodesHave("small", ""); err != nil { // The new form applies to instances that are created later.
		t.Fatal(err)
	}
	node := w.node("m", true, otherID)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if ref := w.get("m").Status.NodeRef; ref == nil || ref.UID != node.UID {
		t.Errorf("nodeRef is %+v", ref)
	}
	w.wantRest("m")
	w.restart()
	w.wantQuiet("m")
	w.delete("m")
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// A Node that registered under an earlier version of the controller has no mark. The provider has to confirm the Node,
// which then gets the mark. While the provider does not answer, the Machine keeps its Node.
//
// Rules: node-provider-id-by-class, node-ref-is-no-proof.
func TestMachineKeepsUnmarkedNode(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		form     string
		nameless bool
	}{
		"the provider reports the name": {"k3s://<<NODE_NAME>>", false},
		"the provider reports no name":  {"k3s://x-<<INSTANCE_ID>>", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			if err := w.nodesHave("small", c.form); err != nil {
				t.Fatal(err)
			}
			if c.nameless {
				w.cloud.NodeName = func(provider.Machine) string { return "" }
			}
			w.createMachine("m")
			w.reconcile("m")
			w.node("m", true, func(n *corev1.Node) { n.Spec.ProviderID = w.get("m").NodeProviderID() })
			w.reconcile("m")
			m := w.get("m")
			w.wantPhase(m, v1beta1.MachineRunning)
			marked := w.getNode(m.Status.NodeRef.Name)
			unmarked := marked.DeepCopy()
			delete(unmarked.Annotations, v1beta1.NodeAnnotationInstance)
			if err := w.api.Patch(t.Context(), unmarked, client.MergeFrom(marked)); err != nil {
				t.Fatal(err)
			}
			w.restart()
			w.effects.clear()
			w.cloud.OnGet = func(string) error { return provider.Errorf(provider.Unavailable, "away") }
			if again := w.reconcile("m").RequeueAfter; again < time.Second {
				t.Errorf("the provider is asked again after %s, want at least a second", again)
			}
			want(t, "writes", w.effects.writes())
			w.cloud.OnGet = nil
			w.reconcile("m")
			want(t, "writes", w.effects.writes(), "API Node patch")
			if got := w.getNode(marked.Name).Annotations[v1beta1.NodeAnnotationInstance]; got !=
				marked.Annotations[v1beta1.NodeAnnotationInstance] {
				t.Errorf("the mark is %q", got)
			}
			w.wantRest("m")
		})
	}
}

// Rule: node-provider-id-by-class.
func TestANodeWithoutProviderIDGetsTheOneOfItsClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	if err := w.nodesHave("small", "k3s://<<NODE_NAME>>"); err != nil {
		t.Fatal(err)
	}
	w.certified("m", w.launched("m"))
	node := w.node("m", true, func(n *corev1.Node) { n.Spec.ProviderID = "" })
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	if id := w.getNode(node.Name).Spec.ProviderID; id != "k3s://"+node.Name {
		t.Errorf("the node has the provider ID %s", id)
	}
}

// Rule: node-provider-id-by-class.
func TestTheFormOfProviderIDsIsValidated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	for _, form := range []string{"k3s://<<NODE_NAME>>", "a+b.c-1://x/<<REGION>>/<<INSTANCE_ID>>/y", ""} {
		if err := w.nodesHave("small", form); err != nil {
			t.Errorf("%q: %v", form, err)
		}
	}
	for _, form := range []string{"k3s://node", "<<NODE_NAME>>", "k3s://<<NAME>>", "k3s://<<REGION>>", "k3s://<<NODE_NAME>> x",
		"k3s://<NODE_NAME>", "K3S://<<NODE_NAME>>"} {
		if err := w.nodesHave("small", form); err == nil || !strings.Contains(err.Error(), "must begin with a scheme such as k3s://") {
			t.Errorf("%q: %v", form, err)
		}
	}
}
