package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rule: join-timeout-fails-machine.
func TestAMachineWithoutANodeFailsAtItsTimeoutAndRecovers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	result := w.reconcile("m")
	m := w.get("m")
	w.wantCondition(m, v1beta1.ConditionRegistered, "False", v1beta1.ReasonWaitingForNode)
	within(t, "the wait for a check of the certificate requests", result.RequeueAfter, requestGrace-time.Minute, requestGrace)
	w.step(result.RequeueAfter)
	result = w.reconcile("m")
	// The creation time of the Machine comes from the API server and is a little later than the start of the test's clock.
	within(t, "the wait for the node", result.RequeueAfter, 19*time.Minute-requestGrace, 21*time.Minute-requestGrace)
	w.step(result.RequeueAfter)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureJoinClusterTimeout {
		t.Errorf("failureReason is %s", m.Status.FailureReason)
	}
	w.wantRest("m")
	w.node("m", true)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionReady, "True", v1beta1.ReasonMachineReady)
	want(t, "events", reasons(w.events.take()), "JoinClusterTimeout", "Running")
	w.wantRest("m")
}

// Most nodes become Ready immediately after their registration. One write reports both the registration and the
// readiness.
//
// Rule: unready-node-reported-later.
func TestANodeThatIsNotReadyYetIsNotReportedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.node("m", false)
	w.effects.clear()
	result := w.reconcile("m")
	want(t, "writes when the node appeared", w.effects.writes(), "API Node patch")
	within(t, "the grace", result.RequeueAfter, 20*time.Second, 31*time.Second)
	w.step(result.RequeueAfter)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineProvisioned)
	w.wantCondition(m, v1beta1.ConditionRegistered, "True", v1beta1.ReasonNodeRegistered)
	w.wantCondition(m, v1beta1.ConditionNodeHealthy, "False", v1beta1.ReasonNodeNotReady)
	w.setNodeReady(nodeNameOf(w.namespace, "m"), corev1.ConditionTrue)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// Rule: startup-taints-once.
func TestStartupTaintsHoldTheMachineOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) { m.Spec.Node.StartupTaints = []corev1.Taint{taint("network", "")} })
	w.reconcile("m")
	node := w.node("m", true)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineProvisioned)
	w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonWaitingForStartupTaints)
	w.wantQuiet("m")
	taints := func(keep bool) {
		t.Helper()
		n := w.getNode(node.Name)
		n.Spec.Taints = slices.DeleteFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return sameTaint(t, taint("network", ""))
		})
		if keep {
			n.Spec.Taints = append(n.Spec.Taints, taint("network", ""))
		}
		if err := w.api.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	taints(false)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)

	// When a network plugin restarts, it sets its taint again for some time. The machine stays Running.
	taints(true)
	w.step(24 * time.Hour)
	w.wantRest("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

func (w *world) setNodeCondition(name string, kind corev1.NodeConditionType, status corev1.ConditionStatus) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Status.Conditions = append(slices.DeleteFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == kind
	}), corev1.NodeCondition{Type: kind, Status: status})
	if err := w.api.Status().Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

// Rule: readiness-gates-required.
func TestReadinessGatesHoldTheMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) {
		m.Spec.Node.ReadinessGates = []v1beta1.NodeReadinessGate{{ConditionType: "NetworkReady"},
			{ConditionType: "example.com/GPU"}}
	})
	w.reconcile("m")
	node := w.node("m", true)
	w.reconcile("m")
	waits := func(phase v1beta1.MachinePhase, message string) {
		t.Helper()
		m := w.get("m")
		w.wantPhase(m, phase)
		w.wantCondition(m, v1beta1.ConditionNodeHealthy, "True", v1beta1.ReasonWaitingForReadinessGates)
		w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonWaitingForReadinessGates)
		c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
		if !strings.HasSuffix(c.Message, message) {
			t.Errorf("the message is %q, want the end %q", c.Message, message)
		}
	}
	waits(v1beta1.MachineProvisioned, "not True: NetworkReady is missing, example.com/GPU is missing.")
	w.wantQuiet("m")
	w.setNodeCondition(node.Name, "NetworkReady", corev1.ConditionTrue)
	w.setNodeCondition(node.Name, "example.com/GPU", corev1.ConditionUnknown)
	w.reconcile("m")
	waits(v1beta1.MachineProvisioned, "not True: example.com/GPU is Unknown.")
	w.setNodeCondition(node.Name, "example.com/GPU", corev1.ConditionTrue)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	w.wantCondition(w.get("m"), v1beta1.ConditionReady, "True", v1beta1.ReasonMachineReady)

	// The machine has run, so it neither fails nor leaves the phase Running.
	w.setNodeCondition(node.Name, "NetworkReady", corev1.ConditionFalse)
	w.reconcile("m")
	waits(v1beta1.MachineRunning, "not True: NetworkReady is False.")
	w.step(24 * time.Hour)
	w.wantRest("m")
	waits(v1beta1.MachineRunning, "not True: NetworkReady is False.")
	w.setNodeCondition(node.Name, "NetworkReady", corev1.ConditionTrue)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionReady, "True", v1beta1.ReasonMachineReady)
}

// Rules: readiness-gates-required, join-timeout-fails-machine.
func TestReadinessGatesCountForTheCreationTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createMachine("m", func(m *v1beta1.Machine) {
		m.Spec.Node.ReadinessGates = []v1beta1.NodeReadinessGate{{ConditionType: "NetworkReady"}}
	})
	w.reconcile("m")
	node := w.node("m", true)
	w.reconcile("m")
	w.step(21 * time.Minute)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineFailed)
	if m.Status.FailureReason != v1beta1.FailureJoinClusterTimeout ||
		!strings.Contains(m.Status.FailureMessage, "The readiness gates were not True within 20m0s.") {
		t.Errorf("failure %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	w.setNodeCondition(node.Name, "NetworkReady", corev1.ConditionTrue)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineRunning)
}

// Rule: contested-node-accepted-by-none.
func TestContestedNodeIsNotAccepted(t *testing.T) {
	t.Parallel()
	t.Run("two nodes with one provider ID", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", "")
		w.createMachine("m")
		w.reconcile("m")
		w.node("m", true)
		w.node("m", true, func(n *corev1.Node) { n.Name += "-twin" })
		w.reconcile("m")
		m := w.get("m")
		w.wantPhase(m, v1beta1.MachineProvisioned)
		w.wantCondition(m, v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
		w.wantQuiet("m")
		if err := w.api.Delete(t.Context(), w.getNode(nodeNameOf(w.namespace, "m-twin"))); err != nil {
			t.Fatal(err)
		}
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
	})
	t.Run("two machines with one provider ID", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		first := w.running("first")
		second := w.createMachine("second", func(m *v1beta1.Machine) { m.Spec.ProviderID = first.Spec.ProviderID })
		// The cloud has given two instances the same ID.
		second.Status.Instance = &v1beta1.InstanceStatus{State: v1beta1.InstanceRunning, Provider: fakeProvider}
		second.Status.Conditions = []metav1.Condition{{Type: v1beta1.ConditionLaunched, Status: metav1.ConditionTrue,
			Reason: v1beta1.ReasonInstanceLaunched, LastTransitionTime: metav1.Now()}}
		if err := w.api.Status().Update(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		w.reconcile("second")
		m := w.get("second")
		w.wantCondition(m, v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeConflict)
		w.delete("second")
		w.reconcile("second")
		if node := w.getNode(first.Status.NodeRef.Name); node == nil || node.Spec.Unschedulable {
			t.Error("the node of another machine was touched")
		}
		if len(w.cloud.LiveInstances()) != 1 {
			t.Error("the instance of another machine was deleted")
		}
		w.wantCondition(w.get("second"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDeleteError)
	})
}

// Rule: deletion-chooses-reporting-node.
func TestTheDeletionOfAMachineWithTwoNodes(t *testing.T) {
	t.Parallel()
	twins := func(t *testing.T, silent bool) *world {
		w := newWorld(t)
		w.cloud.NodeName = func(provider.Machine) string { return "" }
		w.class("small", "")
		w.createMachine("m")
		w.reconcile("m")
		w.node("m", true)
		w.node("m", true, func(n *corev1.Node) { n.Name += "-twin" })
		if silent {
			w.setNodeReady(nodeNameOf(w.namespace, "m-twin"), corev1.ConditionUnknown)
		}
		w.reconcile("m")
		w.podOn(nodeNameOf(w.namespace, "m"))
		w.delete("m")
		w.events.take()
		w.reconcile("m")
		return w
	}
	t.Run("drains the Node that reports if the other is silent", func(t *testing.T) {
		t.Parallel()
		w := twins(t, true)
		w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
		if !w.getNode(nodeNameOf(w.namespace, "m")).Spec.Unschedulable ||
			w.getNode(nodeNameOf(w.namespace, "m-twin")).Spec.Unschedulable {
			t.Error("the wrong node is cordoned")
		}
	})
	t.Run("waits if both Nodes report", func(t *testing.T) {
		t.Parallel()
		w := twins(t, false)
		w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonNodeConflict)
		want(t, "events", reasons(w.events.take()), v1beta1.ReasonNodeConflict)
		w.step(time.Hour)
		w.wantQuiet("m")
		if len(w.cloud.LiveInstances()) != 1 {
			t.Fatal("the instance was deleted with pods on it")
		}
		if err := w.api.Delete(t.Context(), w.getNode(nodeNameOf(w.namespace, "m-twin"))); err != nil {
			t.Fatal(err)
		}
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
	})
	t.Run("continues at once when forced", func(t *testing.T) {
		t.Parallel()
		w := twins(t, false)
		w.annotate("m", v1beta1.AnnotationForceDelete)
		w.untilGone("m")
		if len(w.cloud.LiveInstances()) != 0 {
			t.Error("the instance remains")
		}
	})
}

// Rules: node-by-provider-id, unhealthy-node-checks-instance.
func TestDeletedNode(t *testing.T) {
	t.Parallel()
	t.Run("registers again", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.running("m")
		w.events.take()
		w.dropNode(m)
		w.effects.clear()
		w.reconcile("m")
		m = w.get("m")
		w.wantPhase(m, v1beta1.MachineUnhealthy)
		w.wantCondition(m, v1beta1.ConditionRegistered, "False", v1beta1.ReasonNodeGone)
		w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonNodeGone)
		want(t, "driver calls", w.effects.calls(), "cloud get")
		want(t, "events", reasons(w.events.take()), v1beta1.ReasonNodeGone)
		w.step(time.Hour)
		w.wantRest("m")
		old := m.Status.NodeRef.UID
		w.node("m", true)
		w.reconcile("m")
		m = w.get("m")
		w.wantPhase(m, v1beta1.MachineRunning)
		if m.Status.NodeRef.UID == old {
			t.Error("nodeRef is still that of the deleted node")
		}
		w.wantRest("m")
	})
	t.Run("together with its instance", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.running("m")
		w.cloud.Vanish(m.Spec.ProviderID)
		w.dropNode(m)
		m = w.untilPhase("m", v1beta1.MachineFailed)
		if m.Status.FailureReason != v1beta1.FailureInstanceVanished {
			t.Errorf("failureReason is %s", m.Status.FailureReason)
		}
		w.wantQuiet("m")
		w.delete("m")
		w.untilGone("m")
		w.wantNothingLeft("m")
	})
	t.Run("before the Node was Ready", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.createMachine("m")
		w.reconcile("m")
		w.node("m", false)
		w.step(w.reconcile("m").RequeueAfter)
		w.reconcile("m")
		w.dropNode(w.get("m"))
		w.untilPhase("m", v1beta1.MachineFailed)
	})
}

func (w *world) dropNode(m *v1beta1.Machine) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), w.getNode(m.Status.NodeRef.Name)); err != nil {
		w.t.Fatal(err)
	}
}

// An unhealthy Node is reported once, and the driver is asked once. This controller replaces no machine.
//
// Rule: unhealthy-node-checks-instance.
func TestUnhealthyNode(t *testing.T) {
	t.Parallel()
	for status, reason := range map[corev1.ConditionStatus]string{
		corev1.ConditionFalse: v1beta1.ReasonNodeNotReady, corev1.ConditionUnknown: v1beta1.ReasonNodeUnresponsive,
	} {
		t.Run(string(status), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			w.events.take()
			w.setNodeReady(m.Status.NodeRef.Name, status)
			w.effects.clear()
			w.reconcile("m")
			m = w.get("m")
			w.wantPhase(m, v1beta1.MachineUnhealthy)
			w.wantCondition(m, v1beta1.ConditionNodeHealthy, "False", reason)
			want(t, "effects", w.effects.since(), "cloud get", "API Machine patch status")
			w.step(24 * time.Hour)
			w.wantRest("m")
			w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionTrue)
			w.reconcile("m")
			w.wantPhase(w.get("m"), v1beta1.MachineRunning)
			w.wantRest("m")
			want(t, "events", w.events.take())
		})
	}
	t.Run("because its instance vanished", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.running("m")
		w.cloud.Vanish(m.Spec.ProviderID)
		w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
		w.untilPhase("m", v1beta1.MachineFailed)
	})
	t.Run("while the provider is unreachable", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		m := w.running("m")
		w.cloud.Fail("Get", provider.Errorf(provider.Unavailable, "no"))
		w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	})
}

// A node template that is changed later may be invalid for the API server. A running machine continues to run and
// reports this.
//
// Rule: bad-node-template-reported.
func TestRefusedNodeTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	// The schema rejects most invalid values, but an API server may have stricter rules.
	w.refuse = func(verb string, o runtime.Object) error {
		if node, ok := o.(*corev1.Node); ok && verb == "patch" && node.Labels["reserved"] != "" {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Node"}, node.Name,
				field.ErrorList{field.Invalid(field.NewPath("metadata", "labels"), "reserved", "no")})
		}
		return nil
	}
	nonsense := func(m *v1beta1.Machine) { m.Spec.Node.Labels = map[string]string{"reserved": "x"} }
	w.createMachine("new", nonsense)
	w.reconcile("new")
	w.node("new", true)
	w.reconcile("new")
	w.wantPhase(w.get("new"), v1beta1.MachineProvisioned)
	w.wantCondition(w.get("new"), v1beta1.ConditionRegistered, "False", v1beta1.ReasonInvalidConfiguration)

	w.running("old")
	w.events.take()
	w.update("old", nonsense)
	w.reconcile("old")
	m := w.get("old")
	w.wantPhase(m, v1beta1.MachineRunning)
	c := w.wantCondition(m, v1beta1.ConditionRegistered, "True", v1beta1.ReasonInvalidConfiguration)
	if !strings.Contains(c.Message, `metadata.labels: Invalid value: "reserved"`) {
		t.Errorf("the message does not name the key: %s", c.Message)
	}
	want(t, "events", reasons(w.events.take()), v1beta1.ReasonInvalidConfiguration)
	if result := w.reconcile("old"); result.RequeueAfter != 0 {
		t.Errorf("the template is tried again after %s", result.RequeueAfter)
	}
	w.update("old", func(m *v1beta1.Machine) { m.Spec.Node.Labels = map[string]string{"pool": "x"} })
	w.reconcile("old")
	w.wantCondition(w.get("old"), v1beta1.ConditionRegistered, "True", v1beta1.ReasonNodeRegistered)
	if got := w.getNode(m.Status.NodeRef.Name).Labels["pool"]; got != "x" {
		t.Errorf("label pool of the node is %q", got)
	}
	w.wantRest("old")
}

// No instance is created for the machine, and the Node of a running machine is not changed.
//
// Rule: admitted-bad-object-harmless.
func TestNodeTemplateWithReservedKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	for name, spoil := range map[string]func(*v1beta1.NodeTemplate){
		"spec.node.labels[machinist.dev/machine]": func(n *v1beta1.NodeTemplate) {
			n.Labels = map[string]string{v1beta1.NodeLabelMachine: "other"}
		},
		"spec.node.annotations[machinist.dev/update-requested]": func(n *v1beta1.NodeTemplate) {
			n.Annotations = map[string]string{v1beta1.NodeAnnotationUpdateRequested: "v9.9.9"}
		},
		"spec.node.taints[0].key": func(n *v1beta1.NodeTemplate) {
			n.Taints = []corev1.Taint{{Key: v1beta1.NodeTaintOutdated, Effect: corev1.TaintEffectNoExecute}}
		},
	} {
		machine := fmt.Sprintf("m%d", len(name))
		created := len(w.cloud.Requests())
		w.createMachine("new-"+machine, func(m *v1beta1.Machine) { spoil(&m.Spec.Node) })
		w.reconcile("new-" + machine)
		c := w.wantCondition(w.get("new-"+machine), v1beta1.ConditionLaunched, "False", v1beta1.ReasonInvalidConfiguration)
		if !strings.Contains(c.Message, name) {
			t.Errorf("the message does not name %s: %s", name, c.Message)
		}
		if n := len(w.cloud.Requests()); n != created {
			t.Errorf("%s: an instance was requested", name)
		}
		w.wantRest("new-" + machine)

		before := w.running(machine)
		node := w.getNode(before.Status.NodeRef.Name)
		w.events.take()
		w.update(machine, func(m *v1beta1.Machine) { spoil(&m.Spec.Node) })
		w.reconcile(machine)
		w.wantPhase(w.get(machine), v1beta1.MachineRunning)
		w.wantCondition(w.get(machine), v1beta1.ConditionRegistered, "True", v1beta1.ReasonInvalidConfiguration)
		want(t, "events", reasons(w.events.take()), v1beta1.ReasonInvalidConfiguration)
		if now := w.getNode(node.Name); now.ResourceVersion != node.ResourceVersion {
			t.Errorf("%s: the node was changed: %v %v %v", name, now.Labels, now.Annotations, now.Spec.Taints)
		}
		w.wantRest(machine)
		w.update(machine, func(m *v1beta1.Machine) { m.Spec.Node = v1beta1.NodeTemplate{} })
		w.reconcile(machine)
		w.wantCondition(w.get(machine), v1beta1.ConditionRegistered, "True", v1beta1.ReasonNodeRegistered)
	}
}

// Rule: paused-machine-untouched.
func TestAPausedMachineIsObservedAndNotTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.annotate("m", v1beta1.AnnotationPaused)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Node.Labels = map[string]string{"pool": "x"} })
	w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionFalse)
	w.effects.clear()
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineUnhealthy)
	want(t, "writes", w.effects.writes(), "API Machine patch status")
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
	w.reconcile("m")
	if w.getNode(m.Status.NodeRef.Name).Labels["pool"] != "x" {
		t.Error("the node template is not applied after the pause")
	}
}

// The token is deleted before Running is written to the status, so that no token remains after a crash.
//
// Rule: token-deleted-when-running.
func TestTokenIsDeletedWhenTheMachineHasJoined(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	tokens := w.tokens()
	if len(tokens) != 1 {
		t.Fatalf("there are %d bootstrap tokens", len(tokens))
	}
	secret := tokens[0].Data
	if data := w.cloud.LiveInstances()[0].UserData; !strings.Contains(data, string(secret["token-id"])+"."+
		string(secret["token-secret"])) ||
		!strings.Contains(data, "https://api.example:6443 as m") {
		t.Errorf("user data is %q", data)
	}
	w.node("m", true)
	w.effects.clear()
	w.reconcile("m")
	want(t, "effects", w.effects.since(), "API Node patch", "API Secret delete", "API Machine patch status")
	if len(w.tokens()) > 0 {
		t.Error("the token remains")
	}
	shown := fmt.Sprintf("%+v %+v %q", w.get("m"), w.getNode(nodeNameOf(w.namespace, "m")), w.events.take())
	for _, secret := range []string{string(secret["token-secret"]), "hunter2"} {
		if strings.Contains(shown, secret) {
			t.Errorf("a secret is visible: %s", shown)
		}
	}
}

// Rule: recorded-node-name-follows.
func TestTheRecordedNameOfANodeFollowsTheNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.writeStatus("m", func(s *v1beta1.MachineStatus) { s.Instance.NodeName = "another" })
	w.restart()
	w.reconcile("m")
	if got := w.get("m").Status.Instance.NodeName; got != m.Status.NodeRef.Name {
		t.Errorf("the name is %q, want %q", got, m.Status.NodeRef.Name)
	}
}
