package machine

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

const (
	oldVersion = "v1.36.3" // as set by setNodeReady
	newVersion = "v1.36.4"
)

func leftToAgent(t *testing.T) (*world, *scriptedUpdates, *corev1.Node) {
	t.Helper()
	a := &scriptedUpdates{given: []provider.UpdateResult{{Outcome: provider.UpdateByAgent}}}
	w, _ := changed(t, a)
	return w, a, w.getNode(nodeNameOf(w.namespace, "m"))
}

// onNode changes the Node as the agent, the kubelet or an administrator would.
func (w *world) onNode(change func(*corev1.Node)) {
	w.t.Helper()
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	before := node.DeepCopy()
	change(node)
	status := node.DeepCopy()
	if err := w.api.Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
	if err := w.api.Status().Patch(w.t.Context(), status, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) podGone() {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "work"}}
	if err := w.api.Delete(w.t.Context(), pod, client.GracePeriodSeconds(0)); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	w.drains("m")
}

func (w *world) agentAnswers(result string) {
	w.t.Helper()
	w.onNode(func(node *corev1.Node) { set(&node.Annotations, v1beta1.NodeAnnotationUpdateResult, result) })
}

func (w *world) kubeletIs(version string, ready corev1.ConditionStatus) {
	w.t.Helper()
	w.onNode(func(node *corev1.Node) {
		node.Status.NodeInfo.KubeletVersion = version
		node.Status.Conditions[0].Status = ready
	})
}

// wantRequest checks that the Node contains an unanswered request for this version. An empty version means that the
// Node must contain no request.
func (w *world) wantRequest(version string) *corev1.Node {
	w.t.Helper()
	node := w.getNode(nodeNameOf(w.namespace, "m"))
	if got := requestOn(node); got != (request{version: version}) {
		w.t.Errorf("the request on the node is %+v, want version %q without an answer", got, version)
	}
	return node
}

// Rules agent-asked-after-drain, agent-update-needs-both: the agent receives the request for the update only after the
// drain of the node. The update is complete when the node is Ready with the new version.
func TestAnUpdateByAnAgent(t *testing.T) {
	t.Parallel()
	w, a, node := leftToAgent(t)
	w.podOn(node.Name)
	w.reconcile("m")
	if got := w.wantRequest(""); !got.Spec.Unschedulable {
		t.Error("the node is not cordoned")
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, metav1.ConditionFalse, v1beta1.ReasonDraining)
	w.podGone()
	w.step(time.Minute)
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineUpdating)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.wantRequest(newVersion)
	asked := len(a.asked)
	w.wantQuiet("m")
	w.agentAnswers(v1beta1.UpdateResultSucceeded)
	w.kubeletIs(newVersion, corev1.ConditionFalse)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	if len(a.asked) != asked {
		t.Errorf("the driver was asked %d times more while the agent worked", len(a.asked)-asked)
	}
	w.kubeletIs(newVersion+"+distribution.1", corev1.ConditionTrue)
	w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
	w.wantCondition(m, v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
	if m.Status.Applied.Version != newVersion || m.Status.Applied.ClassName != "large" {
		t.Errorf("applied is %+v", m.Status.Applied)
	}
	if got := w.wantRequest(""); got.Spec.Unschedulable {
		t.Error("the node is still cordoned")
	}
	w.wantRest("m")
}

// Rule: update-done-by-live-node.
func TestUpdateIsNotDoneWhileTheLiveNodeHasAnotherVersion(t *testing.T) {
	t.Parallel()
	w, a, _ := leftToAgent(t)
	late := true
	w.options.Target.Nodes = interceptor.NewClient(w.options.Target.Nodes.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if node, ok := o.(*corev1.Node); ok && late {
				node.Status.NodeInfo.KubeletVersion = newVersion
			}
			return err
		},
	})
	w.restart()
	w.step(24 * time.Hour)
	a.given = []provider.UpdateResult{{Outcome: provider.UpdateDone}}
	w.reconcile("m")
	if c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionUpToDate); c == nil ||
		c.Status != metav1.ConditionFalse {
		t.Errorf("the update counts as done: %+v", c)
	}
	late = false
	for range 3 {
		w.step(time.Hour)
		w.reconcile("m")
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
}

// Rule agent-failure-reported: the failure message of the agent is shortened to one line. The node stays out of
// service. Nothing is tried until an administrator removes an annotation or another version is wanted.
func TestAgentFailureIsReported(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(w *world){
		"the answer removed": func(w *world) {
			w.onNode(func(node *corev1.Node) { delete(node.Annotations, v1beta1.NodeAnnotationUpdateResult) })
		},
		"the request removed": func(w *world) {
			w.onNode(func(node *corev1.Node) { delete(node.Annotations, v1beta1.NodeAnnotationUpdateRequested) })
		},
		"another version": func(w *world) {
			w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = "v1.36.5" })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _, _ := leftToAgent(t)
			w.reconcile("m")
			w.events.take()
			w.agentAnswers("failed: no space\n\x00left \xe2\x80\xae" + strings.Repeat("x", 10_000))
			w.reconcile("m")
			m := w.get("m")
			c := w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateError)
			if !strings.Contains(c.Message, "no space left xxx") || strings.ContainsAny(c.Message, "\n\x00\u202e") ||
				len(c.Message) > 600 {
				t.Errorf("the message is %q", c.Message)
			}
			if m.Status.FailureReason != "" || !w.getNode(m.Status.NodeRef.Name).Spec.Unschedulable {
				t.Errorf("failure reason %q, node %+v", m.Status.FailureReason, w.getNode(m.Status.NodeRef.Name).Spec)
			}
			if events := w.events.take(); len(events) != 1 {
				t.Errorf("events: %q", events)
			}
			w.step(time.Hour)
			w.wantQuiet("m")
			again(w)
			w.reconcile("m")
			m = w.get("m")
			w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
			w.wantRequest(m.Spec.Version)
			w.agentAnswers(v1beta1.UpdateResultSucceeded)
			w.kubeletIs(m.Spec.Version, corev1.ConditionTrue)
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
			w.wantRest("m")
		})
	}
}

// Rule agent-request-clears-answer: the answer "succeeded" counts only if the kubelet has the new version.
func TestAnswerToAnEarlierRequestDoesNotCount(t *testing.T) {
	t.Parallel()
	for _, result := range []string{v1beta1.UpdateResultSucceeded, "failed: whatever"} {
		w, _, _ := leftToAgent(t)
		w.onNode(func(node *corev1.Node) { // from an earlier update
			set(&node.Annotations, v1beta1.NodeAnnotationUpdateRequested, "v1.36.0")
			set(&node.Annotations, v1beta1.NodeAnnotationUpdateResult, result)
		})
		w.reconcile("m")
		w.wantRequest(newVersion)
		w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	}
	w, _, _ := leftToAgent(t)
	w.reconcile("m")
	w.agentAnswers(v1beta1.UpdateResultSucceeded)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.agentAnswers("of course\nit did")
	w.reconcile("m")
	if c := w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse,
		v1beta1.ReasonWaitingForAgent); !strings.Contains(c.Message, "of course it did") {
		t.Errorf("the message is %q", c.Message)
	}
}

// Rule reverted-change-asked-again: the agent may already have made the change that is reverted.
func TestRevertedChangeIsRequestedFromTheAgent(t *testing.T) {
	t.Parallel()
	for name, paused := range map[string]bool{"at once": false, "while the machine is paused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, a, _ := leftToAgent(t)
			w.reconcile("m")
			w.wantRequest(newVersion)
			a.given = []provider.UpdateResult{{Outcome: provider.UpdateDone}} // as far as the cloud knows
			if paused {
				w.annotate("m", v1beta1.AnnotationPaused)
				w.reconcile("m")
			}
			w.update("m", func(m *v1beta1.Machine) {
				m.Spec.ClassRef.Name, m.Spec.Version = m.Status.Applied.ClassName, oldVersion
			})
			if paused {
				w.reconcile("m")
				w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
			}
			w.kubeletIs(newVersion, corev1.ConditionTrue) // The agent had almost finished.
			w.reconcile("m")
			w.wantRequest(oldVersion)
			w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
			w.agentAnswers(v1beta1.UpdateResultSucceeded)
			w.kubeletIs(oldVersion, corev1.ConditionTrue)
			w.reconcile("m")
			m := w.get("m")
			w.wantCondition(m, v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
			if node := w.wantRequest(""); node.Spec.Unschedulable || m.Status.Applied.Version != oldVersion {
				t.Errorf("node %+v, applied %+v", node.Spec, m.Status.Applied)
			}
			w.wantRest("m")
		})
	}
}

// Rule late-agent-reported: a late answer still counts. A repeated request gets the full timeout. Time in which the
// target cluster was unreachable does not count.
func TestAgentTimeoutIsReported(t *testing.T) {
	t.Parallel()
	w, _, _ := leftToAgent(t)
	r := w.watched()
	w.reconcile("m")
	w.step(v1beta1.DefaultUpdateTimeout - time.Minute)
	w.unreachable(r)
	w.reconcile("m")
	w.step(time.Hour)
	w.reconcile("m")
	w.back(r)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.step(time.Minute + 2*time.Second)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateTimeout)
	w.wantRest("m")
	w.onNode(func(node *corev1.Node) { delete(node.Annotations, v1beta1.NodeAnnotationUpdateRequested) })
	if result := w.reconcile("m"); result.RequeueAfter != v1beta1.DefaultUpdateTimeout {
		t.Errorf("the machine is requeued after %s", result.RequeueAfter)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.step(2 * v1beta1.DefaultUpdateTimeout)
	w.reconcile("m")
	w.agentAnswers(v1beta1.UpdateResultSucceeded)
	w.kubeletIs(newVersion, corev1.ConditionTrue)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionTrue, v1beta1.ReasonUpToDate)
}

// Rule late-agent-reported: a process does not know which outages occurred before it became the leader, but it knows
// which timeouts were already reported.
func TestAgentTimeoutStartsWhenTheProcessBeginsToLead(t *testing.T) {
	t.Parallel()
	w, _, _ := leftToAgent(t)
	w.watched()
	w.reconcile("m")
	w.step(2 * v1beta1.DefaultUpdateTimeout)
	w.restart()
	if result := w.reconcile("m"); result.RequeueAfter != v1beta1.DefaultUpdateTimeout {
		t.Errorf("the machine is requeued after %s", result.RequeueAfter)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.step(v1beta1.DefaultUpdateTimeout)
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateTimeout)
	w.restart()
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdateTimeout)
	w.wantRest("m")
}

// Rule: reregistered-node-drained-again.
func TestAgentUpdateOnADeletedNode(t *testing.T) {
	t.Parallel()
	w, _, node := leftToAgent(t)
	w.reconcile("m")
	if err := w.api.Delete(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonWaitingForAgent)
	w.node("m", true)
	w.podOn(node.Name)
	w.reconcile("m")
	w.reconcile("m")
	m := w.get("m")
	if m.Status.NodeRef.UID == node.UID {
		t.Fatal("nodeRef is not that of the new node")
	}
	w.wantCondition(m, v1beta1.ConditionDrained, metav1.ConditionFalse, v1beta1.ReasonDraining)
	w.wantRequest("")
	w.podGone()
	w.step(time.Minute)
	w.reconcile("m")
	w.wantRequest(newVersion)
}

// Rule reregistered-node-drained-again: without a target cluster, the update is refused. Until the Node has registered,
// the update waits.
func TestAgentUpdateWithoutANode(t *testing.T) {
	t.Parallel()
	byAgent := func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: provider.UpdateByAgent}, nil
	}
	w := newWorld(t, noTarget)
	w.cloud.OnUpdate = byAgent
	w.class("small", "")
	w.createMachine("m")
	w.untilPhase("m", v1beta1.MachineAvailable)
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = newVersion })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUnsupportedChange)
	w.wantPhase(w.get("m"), v1beta1.MachineAvailable)
	w.wantRest("m")

	w = newWorld(t)
	w.cloud.OnUpdate = byAgent
	w.class("small", "")
	w.createMachine("m")
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.Version = newVersion })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionUpToDate, metav1.ConditionFalse, v1beta1.ReasonUpdatePending)
	w.node("m", true)
	w.reconcile("m")
	w.reconcile("m")
	w.wantRequest(newVersion)
}
