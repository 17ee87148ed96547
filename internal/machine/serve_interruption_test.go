package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

const spotTaint = "aws-node-termination-handler/spot-itn"

func (w *world) taintNode(name, key string) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Spec.Taints = append(node.Spec.Taints, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule})
	if err := w.api.Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) untaintNode(name, key string) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Spec.Taints = nil
	for _, t := range before.Spec.Taints {
		if t.Key != key {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
	if err := w.api.Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) nodeReports(name string, kind corev1.NodeConditionType, status corev1.ConditionStatus, reason string,
	ready corev1.ConditionStatus) {
	w.t.Helper()
	node := w.getNode(name)
	before := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{
		{Type: corev1.NodeReady, Status: ready, Reason: "Test"},
		{Type: kind, Status: status, Reason: reason},
	}
	if err := w.api.Status().Patch(w.t.Context(), node, client.MergeFrom(before)); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) wantCordoned(name string, want bool) {
	w.t.Helper()
	if got := w.getNode(name).Spec.Unschedulable; got != want {
		w.t.Errorf("node %s is cordoned: %t, want %t", name, got, want)
	}
}

// Rule interruption-drains-at-once: the drain does not wait for the deletion of the machine, and ends before the
// instance is reclaimed.
func TestInterruptionNoticeDrainsTheNodeAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	node := m.Status.NodeRef.Name
	w.podOn(node)
	w.taintNode(node, spotTaint)
	drainer := &recordingDrainer{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.effects.clear()
	w.events.take()
	w.reconcile("m")

	m = w.get("m")
	end := w.clock.Now().Add(2 * time.Minute).Truncate(time.Second)
	w.wantPhase(m, v1beta1.MachineRunning)
	w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "True", v1beta1.ReasonPreemptionNotice)
	w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonPreemptionNotice)
	w.wantCondition(m, v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining)
	w.wantCondition(m, v1beta1.ConditionUpToDate, "True", v1beta1.ReasonUpToDate)
	if at := m.Status.InterruptionTime; at == nil || !at.Time.Equal(end) {
		t.Errorf("interruptionTime is %s, want %s", at, end)
	}
	w.wantCordoned(node, true)
	want(t, "effects", w.effects.since(), "API Machine patch status", "API Node patch", "API Machine patch status")
	if events := w.events.take(); len(events) != 1 {
		t.Errorf("events: %q", events)
	}
	w.step(10 * time.Second)
	w.wantQuiet("m")

	// Another process or a deletion of the machine continues the same drain.
	w.restart()
	drainer.Drainer, w.process.Drainer = w.process.Drainer, drainer
	w.wantQuiet("m")
	w.delete("m")
	w.reconcile("m")
	for _, r := range drainer.requests {
		if !r.Start.Equal(drainer.requests[0].Start) || !r.Deadline.Equal(end.Add(-interruptionMargin)) {
			t.Errorf("requested a drain from %s to %s, but the instance is reclaimed at %s", r.Start, r.Deadline, end)
		}
	}
	if n := len(drainer.requests); n != 6 { // two requests came before the workers of a process had checked the node
		t.Errorf("requested %d times", n)
	}
}

// Rule: interruption-drains-at-once.
func TestANodeWithoutPodsIsDrainedInThePassThatSeesTheNotice(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.nodeReports(m.Status.NodeRef.Name, "Terminating", corev1.ConditionTrue, "TerminationRequested", corev1.ConditionTrue)
	w.reconcile("m")
	m = w.get("m")
	w.wantCondition(m, v1beta1.ConditionDrained, "True", v1beta1.ReasonDrained)
	w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonPreemptionNotice)
	w.wantCordoned(m.Status.NodeRef.Name, true)
	w.wantQuiet("m")
	// The machine has no owner that would delete it. When its instance is gone, the machine becomes Failed.
	w.cloud.Vanish(m.Spec.ProviderID)
	w.nodeReports(m.Status.NodeRef.Name, "Terminating", corev1.ConditionTrue, "TerminationRequested",
		corev1.ConditionUnknown)
	m = w.untilPhase("m", v1beta1.MachineFailed)
	w.wantCondition(m, v1beta1.ConditionReady, "False", v1beta1.ReasonInstanceVanished)
	w.wantQuiet("m")
}

// Rule interruption-drains-at-once: the drain cannot take the two hours that a normal drain may take.
func TestANoticeInTheMiddleOfADeletionShortensItsDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	drainer := &recordingDrainer{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.reconcile("m")
	w.step(time.Minute)
	w.taintNode(m.Status.NodeRef.Name, "cloud.google.com/impending-node-termination")
	w.reconcile("m")
	if len(drainer.requests) != 3 { // one request came before the workers had checked the node
		t.Fatalf("requested %d times", len(drainer.requests))
	}
	first, second := drainer.requests[1], drainer.requests[2]
	if !second.Start.Equal(first.Start) || !first.Deadline.Equal(first.Start.Add(2*time.Hour)) {
		t.Errorf("the drain was from %s to %s, and is from %s", first.Start, first.Deadline, second.Start)
	}
	if wanted := w.clock.Now().Add(25 * time.Second).Truncate(time.Second); !second.Deadline.Equal(wanted) {
		t.Errorf("the drain ends at %s, want %s", second.Deadline, wanted)
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
}

// Rule: withdrawn-interruption-ends-drain.
func TestANoticeThatIsWithdrawnPutsTheNodeBackIntoService(t *testing.T) {
	t.Parallel()
	for name, drained := range map[string]bool{"in the middle of the drain": false, "after the drain": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			node := m.Status.NodeRef.Name
			if !drained {
				w.podOn(node)
			}
			w.taintNode(node, spotTaint)
			w.reconcile("m")
			w.wantCordoned(node, true)
			w.untaintNode(node, spotTaint)
			w.restart()
			if again := w.reconcile("m").RequeueAfter; again != time.Millisecond {
				t.Errorf("the machine is requeued after %s", again)
			}
			w.wantCordoned(node, true) // The owner may still act on the notice.
			w.reconcile("m")
			m = w.get("m")
			w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "False", v1beta1.ReasonInterruptionWithdrawn)
			w.wantCondition(m, v1beta1.ConditionReady, "True", v1beta1.ReasonMachineReady)
			if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained); c != nil ||
				m.Status.InterruptionTime != nil {
				t.Errorf("Drained is %+v, interruptionTime %s", c, m.Status.InterruptionTime)
			}
			w.wantCordoned(node, false)
			w.wantRest("m")
		})
	}
}

// Rule: withdrawn-interruption-ends-drain.
func TestAWithdrawnNoticeLeavesACordonOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	node := w.getNode(m.Status.NodeRef.Name)
	before := node.DeepCopy()
	node.Spec.Unschedulable = true
	if err := w.api.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.taintNode(node.Name, spotTaint)
	w.reconcile("m")
	w.untaintNode(node.Name, spotTaint)
	w.reconcile("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionInterruptionNotice, "False", v1beta1.ReasonInterruptionWithdrawn)
	w.wantCordoned(node.Name, true)
}

// Rule interruption-drains-at-once: a notice is reported even if the machine must not be changed.
func TestExemptMachinesAreNotDrainedForANotice(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change   func(*v1beta1.Machine)
		cordoned bool
	}{
		"paused":               {func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPaused, "") }, false},
		"another type version": {func(m *v1beta1.Machine) { m.Labels[v1beta1.LabelTypeVersion] = "v9" }, false},
		"preserved": {func(m *v1beta1.Machine) { set(&m.Annotations, v1beta1.AnnotationPreserve, v1beta1.PreserveNow) },
			true},
		"with a preDrain hook": {func(m *v1beta1.Machine) {
			m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "example.com/backup", Owner: "me"}}
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			w.podOn(m.Status.NodeRef.Name)
			w.update("m", tc.change)
			w.taintNode(m.Status.NodeRef.Name, spotTaint)
			w.reconcile("m")
			m = w.get("m")
			w.wantCondition(m, v1beta1.ConditionInterruptionNotice, "True", v1beta1.ReasonPreemptionNotice)
			if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained); c != nil {
				t.Errorf("the machine is drained: %+v", c)
			}
			w.wantCordoned(m.Status.NodeRef.Name, tc.cordoned)
			w.wantQuiet("m")
		})
	}
}

// Rule: interruption-drains-at-once.
func TestInterruptedMachineIsNotUpdated(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.class("large", "")
	m := w.running("m")
	w.taintNode(m.Status.NodeRef.Name, spotTaint)
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.effects.clear()
	w.reconcile("m")
	want(t, "driver calls", w.effects.calls())
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "True", v1beta1.ReasonDrained)
}

type forbiddenDrainer struct {
	Drainer
	t testing.TB
}

func (f forbiddenDrainer) Drain(drain.Request) drain.Outcome {
	f.t.Error("a drain was requested")
	return drain.Outcome{}
}

// Rule: interruption-drains-at-once.
func TestAdvisorySignalsDrainNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.process.Drainer = forbiddenDrainer{w.process.Drainer, t}
	w.taintNode(m.Status.NodeRef.Name, "aws-node-termination-handler/rebalance-recommendation")
	w.wantRest("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionReady, metav1.ConditionTrue, v1beta1.ReasonMachineReady)
}
