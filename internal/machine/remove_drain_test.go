package machine

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
)

func (w *world) podOn(node string) {
	w.t.Helper()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "work"}}
	pod.Spec.NodeName = node
	pod.Spec.Containers = []corev1.Container{{Name: "work", Image: "work"}}
	w.create(pod)
}

// Rule: force-delete-ends-drain.
func TestADrainBlocksTheDeletionUntilItIsForced(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.effects.clear()
	result := w.reconcile("m")
	m = w.get("m")
	w.wantPhase(m, v1beta1.MachineDeleting)
	w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
	start := w.wantCondition(m, v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
	want(t, "effects", w.effects.since(), "API Node patch", "API Machine patch status")
	if result.RequeueAfter == 0 {
		t.Error("no pass is scheduled in case the trigger of the drain is lost")
	}
	w.wantQuiet("m")
	w.step(30 * time.Second)
	w.restart()
	w.wantQuiet("m")
	if c := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False",
		v1beta1.ReasonDraining); !c.LastTransitionTime.Equal(&start) {
		t.Error("the drain began again after a restart")
	}
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule: force-delete-ends-drain.
func TestAForcedDeletionEndsTheDrainOfANodeThatCannotBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	if _, err := w.singlePass("m"); err != nil { // The workers have not checked the node yet.
		t.Fatal(err)
	}
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.refuseNodes("")
	if _, err := w.pass("m"); err == nil {
		t.Error("the pass reports no error to retry on")
	}
	want(t, "driver calls", w.effects.calls(), "cloud create", "cloud delete")
	w.refuse = nil
	w.drains("m")
	pod := &corev1.Pod{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "work"}, pod); err != nil ||
		pod.DeletionTimestamp != nil {
		t.Errorf("the pod was evicted: %v, %v", pod.DeletionTimestamp, err)
	}
	w.reconcile("m")
	w.wantNothingLeft("m")
}

type fixedDrainer struct {
	Drainer
	message string
}

func (s fixedDrainer) Drain(drain.Request) drain.Outcome {
	return drain.Outcome{Reason: v1beta1.ReasonDraining, Message: s.message}
}

// Two leaders may see a drain in different states.
//
// Rule: drain-names-blockers.
func TestTwoLeadersDoNotOverwriteEachOthersReports(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.delete("m")
	leaders := []*Reconciler{w.process, nil}
	w.restart()
	leaders[1] = w.process
	for i, message := range []string{"first", "second"} {
		leaders[i].Drainer = fixedDrainer{leaders[i].Drainer, message}
		w.process = leaders[i]
		w.reconcile("m")
	}
	began := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining)
	for range 2 {
		for _, w.process = range leaders {
			w.wantQuiet("m")
		}
	}
	// A leader reports a change at once. After a while it also reports an unchanged state again, because the other leader
	// may be gone.
	w.process = leaders[0]
	w.process.Drainer = fixedDrainer{w.process.Drainer, "third"}
	w.reconcile("m")
	w.process = leaders[1]
	w.wantQuiet("m")
	w.step(time.Minute)
	w.reconcile("m")
	if c := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False",
		v1beta1.ReasonDraining); c.Message != "second" || !c.LastTransitionTime.Equal(&began.LastTransitionTime) {
		t.Errorf("Drained is %+v, it was %+v", c, began)
	}
}

// Other clients change the Node again and again.
//
// Rule: deletion-order.
func TestAConflictDoesNotSkipTheDrain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.effects.clear()
	w.refuse = func(verb string, o runtime.Object) error {
		if node, ok := o.(*corev1.Node); ok && verb == "patch" {
			return apierrors.NewConflict(corev1.Resource("nodes"), node.Name, errors.New("the object has been modified"))
		}
		return nil
	}
	if again := w.reconcile("m").RequeueAfter; again == 0 {
		t.Error("no further pass is scheduled")
	}
	want(t, "driver calls", w.effects.calls())
	w.refuse = nil
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining)
	want(t, "driver calls", w.effects.calls())
}

// Rule budgets-hold-until-deadline: PodDisruptionBudgets are respected for the full time of the drain, even if it took
// long to cordon the Node.
func TestADrainBeginsWhenTheNodeIsCordoned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.podOn(m.Status.NodeRef.Name)
	w.delete("m")
	w.refuse = func(verb string, o runtime.Object) error {
		if _, ok := o.(*corev1.Node); ok && verb == "patch" {
			w.step(time.Minute)
		}
		return nil
	}
	w.reconcile("m")
	began := w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining).LastTransitionTime
	if now := w.clock.Now().Truncate(time.Second); !began.Time.Equal(now) {
		t.Errorf("the drain began at %s, the node was cordoned at %s", began, now)
	}
}

type recordingDrainer struct {
	Drainer
	requests []drain.Request
}

func (a *recordingDrainer) Drain(r drain.Request) drain.Outcome {
	a.requests = append(a.requests, r)
	return a.Drainer.Drain(r)
}

// A request that differs from the previous one would make the workers check the node again.
func TestRepeatedDrainRequestsAreEqual(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	drainer := &recordingDrainer{Drainer: w.process.Drainer}
	w.process.Drainer = drainer
	w.podOn(m.Status.NodeRef.Name)
	w.step(123456789 * time.Nanosecond)
	w.delete("m")
	if _, err := w.singlePass("m"); err != nil { // The workers have not checked the node yet.
		t.Fatal(err)
	}
	w.step(time.Second)
	for range 3 {
		w.reconcile("m")
		w.step(time.Second)
	}
	for _, r := range drainer.requests[1:] {
		if first := drainer.requests[1]; !r.Start.Equal(first.Start) || !r.Deadline.Equal(first.Deadline) {
			t.Errorf("requested a drain from %s to %s, and then from %s to %s", first.Start, first.Deadline, r.Start, r.Deadline)
		}
	}
	if n := len(drainer.requests); n != 5 { // two requests came before the workers had checked the node
		t.Errorf("requested %d times", n)
	}
}

// Rule: force-delete-ends-drain.
func TestADrainIsSkippedOnRequest(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{v1beta1.AnnotationSkipDrain, v1beta1.AnnotationForceDelete} {
		t.Run(annotation, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			m := w.running("m")
			w.podOn(m.Status.NodeRef.Name)
			w.annotate("m", annotation)
			w.delete("m")
			w.reconcile("m")
			w.wantNothingLeft("m")
		})
	}
}

// A Node that has just registered may already have pods that must be drained.
func TestANodeThatIsNotRecordedYetIsDrainedAndDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.reconcile("m")
	node := w.node("m", false)
	w.podOn(node.Name)
	w.delete("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
	w.annotate("m", v1beta1.AnnotationSkipDrain)
	w.reconcile("m")
	w.wantNothingLeft("m")
}
