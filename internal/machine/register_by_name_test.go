package machine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
)

// A single patch sets the provider ID of the Node and applies the node template.
//
// Rules: node-paired-by-token, four-writes-to-running.
func TestANodeWithoutAProviderIDIsPairedByItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	user := w.launched("m")
	w.certified("m", user)
	node := w.node("m", true, withoutProviderID)
	w.effects.clear()
	w.reconcile("m")
	want(t, "effects", w.effects.since(), "API Node patch", "API Secret delete", "API Machine patch status")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	if got := w.getNode(node.Name); got.Spec.ProviderID != m.Spec.ProviderID || got.UID != m.Status.NodeRef.UID ||
		tainted(got, v1beta1.NodeTaintUninitialized) {
		t.Errorf("the node is %+v, paired with %+v", got.Spec, m.Status.NodeRef)
	}
	w.wantRest("m")
	w.delete("m")
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// The token expires with the time to join. The certificate requests still prove to which machine the Node belongs.
//
// Rule: node-paired-by-token.
func TestANodeIsPairedByItsNameAfterItsTokenIsGone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	user := w.launched("m")
	w.certified("m", user)
	w.step(v1beta1.DefaultCreationTimeout + time.Minute)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineFailed)
	w.node("m", true, withoutProviderID)
	w.restart()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// Rule: node-paired-by-token.
func TestANodeIsNotPairedByItsNameAlone(t *testing.T) {
	t.Parallel()
	const unassigned = "system:bootstrap:zzzzz0"
	for name, tc := range map[string]struct {
		tokenless bool
		arrange   func(w *world, user string)
		// reason and message are the expected values in the condition Registered. The default reason is WaitingForNode.
		reason, message string
	}{
		"without any request": {arrange: func(w *world, _ string) { w.node("m", true, withoutProviderID) },
			message: "set its provider ID to"},
		"without a token": {tokenless: true, arrange: func(w *world, _ string) {
			w.certified("m", unassigned)
			w.node("m", true, withoutProviderID)
		}, message: "the user data has no token"},
		"by a pending request": {arrange: func(w *world, user string) { w.requested("m", user); w.node("m", true, withoutProviderID) },
			message: "no issued certificate connects it"},
		"by a denied request": {arrange: func(w *world, user string) {
			w.certified("m", user, denied)
			w.node("m", true, withoutProviderID)
		}, message: "no issued certificate connects it"},
		"by an unsigned request": {arrange: func(w *world, user string) {
			w.certified("m", user, unsigned)
			w.node("m", true, withoutProviderID)
		}, message: "no issued certificate connects it"},
		"by another token": {arrange: func(w *world, _ string) {
			w.certified("m", unassigned)
			w.node("m", true, withoutProviderID)
		}, message: "no issued certificate connects it"},
		"by no token": {arrange: func(w *world, _ string) { w.certified("m", "alice"); w.node("m", true, withoutProviderID) },
			message: "no issued certificate connects it"},
		"for another name": {arrange: func(w *world, user string) {
			w.certified("other", user)
			w.node("m", true, withoutProviderID)
		}, message: "no issued certificate connects it"},
		"by a former attempt": {arrange: formerAttempt, message: "no issued certificate connects it"},
		"with a second bearer": {arrange: func(w *world, user string) {
			w.certified("m", user)
			w.certified("m", unassigned)
			w.node("m", true, withoutProviderID)
		}, reason: v1beta1.ReasonNodeConflict, message: "zzzzz0"},
		"that existed before": {arrange: thereBefore, reason: v1beta1.ReasonNodeConflict, message: "existed before"},
		"made by hand": {arrange: func(w *world, user string) {
			w.certified("m", user)
			w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeNameOf(w.namespace, "m")}})
		}, message: "no kubelet reports"},
		"before the cloud-controller-manager set its ID": {arrange: func(w *world, user string) {
			w.certified("m", user)
			w.node("m", true, withoutProviderID, func(n *corev1.Node) {
				n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taintCloudProvider, Value: "true",
					Effect: corev1.TaintEffectNoSchedule})
			})
		}, message: "cloud-controller-manager"},
		"of another machine": {arrange: func(w *world, user string) {
			w.certified("m", user)
			node := w.node("m", true, withoutProviderID)
			other := w.createMachine("other", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "none" })
			other.Status.NodeRef = &v1beta1.NodeRef{Name: node.Name, UID: node.UID}
			if err := w.api.Status().Update(w.t.Context(), other); err != nil {
				w.t.Fatal(err)
			}
		}, reason: v1beta1.ReasonNodeConflict, message: "/other"},
		"if requests cannot be read": {arrange: func(w *world, user string) {
			w.certified("m", user)
			w.node("m", true, withoutProviderID)
			w.refuse = func(_ string, o runtime.Object) error {
				if _, ok := o.(*certificatesv1.CertificateSigningRequestList); ok {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "certificatesigningrequests"}, "", errors.New("no"))
				}
				return nil
			}
		}, message: "forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			user := ""
			if tc.tokenless {
				w.class("small", "joins without a token")
				w.createMachine("m")
				w.reconcile("m")
			} else {
				w.class("small", joinsWithToken)
				user = w.launched("m")
			}
			tc.arrange(w, user)
			before := w.getNode(nodeNameOf(w.namespace, "m"))
			// A Node may get the missing proof a moment later, so a missing proof is not reported at once.
			w.effects.clear()
			w.reconcile("m")
			if tc.reason == "" {
				w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonWaitingForNode)
				want(t, "writes at once", w.effects.writes())
			}
			w.step(registrationGrace + time.Minute) // The clock of the API server keeps running during the test.
			w.reconcile("m")
			m := w.get("m")
			if tc.reason == "" {
				tc.reason = v1beta1.ReasonWaitingForNode
			}
			if c := w.wantCondition(m, v1beta1.ConditionRegistered, "False", tc.reason); !strings.Contains(c.Message,
				tc.message) {
				t.Errorf("the message of Registered is %q, want %q in it", c.Message, tc.message)
			}
			w.wantPhase(m, v1beta1.MachineProvisioned)
			w.wantQuiet("m")
			w.delete("m")
			w.runUntil("m", "the deletion of the machine", func() bool { return w.get("m") == nil })
			after := w.getNode(before.Name)
			if name == "before the cloud-controller-manager set its ID" {
				if after != nil {
					t.Error("the node remains although its instance is gone")
				}
				return
			}
			if after == nil || after.UID != before.UID || after.ResourceVersion != before.ResourceVersion {
				t.Errorf("a node that is not the machine's was touched: %v", after)
			}
		})
	}
}

// A certificate of the Machine's previous instance does not mean that the Node belongs to another machine.
//
// Rule: node-paired-by-token.
func TestAReplacedInstanceIsPairedByItsName(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.certified("m", w.launched("m"))
	m := w.get("m")
	former := bootstrap.Attempt{Machine: client.ObjectKeyFromObject(m), UID: m.UID, Number: 1}
	m.Status.Launch = &v1beta1.LaunchStatus{Attempt: 2}
	if err := w.api.Status().Update(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	tokens := bootstrap.Tokens{Client: w.api}
	if err := tokens.Delete(t.Context(), former); err != nil {
		t.Fatal(err)
	}
	former.Number = 2
	if _, err := tokens.Ensure(t.Context(), former, bootstrap.Terms{Expires: time.Now().Add(time.Hour)}); err != nil {
		t.Fatal(err)
	}
	w.certified("m", "system:bootstrap:"+w.tokenID())
	w.node("m", true, withoutProviderID)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// A kubelet still has its certificate after the cluster has deleted the certificate request.
//
// Rules: node-paired-by-token, node-by-provider-id.
func TestANodeThatRegistersAgainIsPairedByItsName(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]bool{"alone": false, "while another machine expects the name": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			w.dropNode(m)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
			if other {
				other := w.createMachine("other", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "none" })
				other.Status.Instance = &v1beta1.InstanceStatus{NodeName: m.Status.NodeRef.Name, State: v1beta1.InstanceRunning,
					Provider: w.cloud.ProviderName}
				if err := w.api.Status().Update(t.Context(), other); err != nil {
					t.Fatal(err)
				}
			}
			node := w.node("m", true, withoutProviderID)
			w.reconcile("m")
			m = w.get("m")
			if paired := m.Status.NodeRef.UID == node.UID; paired == other {
				t.Errorf("paired with the new node: %t; %s", paired, summaryOf(m))
			}
			if got := w.getNode(node.Name).Spec.ProviderID; (got == m.Spec.ProviderID) == other {
				t.Errorf("the node's provider ID is %q", got)
			}
		})
	}
}

// A Node may already have pods before it is paired with its machine. The deletion must drain these pods.
//
// Rules: node-paired-by-token, deletion-order.
func TestANodeIsFoundByItsNameForDeletion(t *testing.T) {
	t.Parallel()
	t.Run("before it was paired", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", joinsWithToken)
		user := w.launched("m")
		w.certified("m", user)
		w.node("m", true, withoutProviderID)
		w.delete("m")
		w.effects.clear()
		w.untilGone("m")
		if writes := w.effects.since("API Node"); len(writes) != 2 || writes[0] != "API Node patch" ||
			writes[1] != "API Node delete" {
			t.Errorf("writes to the node: %q; want a cordon and the deletion", writes)
		}
		w.wantNothingLeft("m")
	})
	t.Run("before the cache has it", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", joinsWithToken)
		w.certified("m", w.launched("m"))
		w.node("m", true, withoutProviderID)
		w.options.Target.Nodes = withoutNodes(w.options.Target.LiveClient.(client.WithWatch))
		w.restart()
		w.delete("m")
		w.untilGone("m")
		w.wantNothingLeft("m")
	})
	t.Run("not if another instance has the name", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", joinsWithToken)
		user := w.launched("m")
		w.certified("m", user)
		w.node("m", true, withoutProviderID)
		w.reconcile("m")
		m := w.get("m")
		w.wantPhase(m, v1beta1.MachineRunning)
		// The instance and the Node are gone, and another instance has got the host name.
		w.dropNode(m)
		w.cloud.Vanish(m.Spec.ProviderID)
		w.certified("m", "system:bootstrap:zzzzz0")
		w.delete("m")
		other := w.node("m", true, withoutProviderID)
		w.untilGone("m")
		if got := w.getNode(other.Name); got == nil || got.Spec.Unschedulable {
			t.Error("the node of another instance was touched")
		}
	})
	t.Run("paired while it was paused", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", joinsWithToken)
		user := w.launched("m")
		w.annotate("m", v1beta1.AnnotationPaused)
		w.certified("m", user)
		node := w.node("m", true, withoutProviderID)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		if id := w.getNode(node.Name).Spec.ProviderID; id != "" {
			t.Fatalf("the node of a paused machine got the provider ID %s", id)
		}
		w.delete("m")
		w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
		w.untilGone("m")
		w.wantNothingLeft("m")
	})
}

func withoutNodes(c client.WithWatch) client.Client {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			if _, ok := o.(*corev1.Node); ok {
				return apierrors.NewNotFound(schema.GroupResource{Resource: "nodes"}, key.Name)
			}
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.NodeList); ok {
				return nil
			}
			return c.List(ctx, list, opts...)
		},
	})
}

// Another client may set the provider ID after the check and before the patch.
//
// Rule: node-paired-by-token.
func TestConcurrentlySetProviderIDIsNotOverwritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	user := w.launched("m")
	w.certified("m", user)
	node := w.node("m", true, withoutProviderID)
	named := false
	w.refuse = func(verb string, o runtime.Object) error {
		if _, ok := o.(*corev1.Node); ok && verb == "patch" && !named {
			named = true
			n := w.getNode(node.Name)
			ofAnotherInstance(n)
			return w.api.Update(context.Background(), n)
		}
		return nil
	}
	if _, err := w.pass("m"); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	got := w.getNode(node.Name)
	if !named || got.Spec.ProviderID != "fake:///somebody/else" || got.Labels[v1beta1.NodeLabelMachine] != "" ||
		w.get("m").Status.NodeRef != nil {
		t.Errorf("the node of another instance is %s with %v", got.Spec.ProviderID, got.Labels)
	}
}

// In rare cases, two machines have the same token ID.
//
// Rule: node-paired-by-token.
func TestTokenIDOfAnotherMachineIsNotUsed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := types.NamespacedName{Namespace: w.namespace, Name: "m"}
	attempt := bootstrap.Attempt{Machine: m, UID: types.UID(w.namespace), Number: 1}
	tokens := bootstrap.Tokens{Client: w.api}
	id, err := tokens.ID(t.Context(), attempt)
	if err != nil {
		t.Fatal(err)
	}
	w.create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id,
		Annotations: map[string]string{"machinist.dev/bootstrap-token-machine": fmt.Sprint(m)},
	}})
	if next, err := tokens.ID(t.Context(), attempt); err != nil || next == id || next == "" {
		t.Errorf("the ID is %q (error %v), but %q belongs to another machine", next, err, id)
	}
}
