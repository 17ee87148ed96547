package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// createSilent creates a running Machine with attached volumes. The kubelet of its node no longer reports.
func (w *world) createSilent(name string, volumes ...string) *v1beta1.Machine {
	w.t.Helper()
	m := w.running(name)
	for _, volume := range volumes {
		w.attach(m.Status.NodeRef.Name, volume)
	}
	w.setNodeReady(m.Status.NodeRef.Name, corev1.ConditionUnknown)
	return m
}

func (w *world) attach(node, volume string) {
	w.t.Helper()
	w.create(&storagev1.VolumeAttachment{
		ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + volume},
		Spec: storagev1.VolumeAttachmentSpec{
			Attacher: "test.example.com", NodeName: node,
			Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &volume},
		},
	})
	w.t.Cleanup(func() { w.detach(context.Background(), volume) })
}

func (w *world) detach(ctx context.Context, volume string) {
	w.t.Helper()
	va := &storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: w.namespace + "-" + volume}}
	if err := w.api.Delete(ctx, va); client.IgnoreNotFound(err) != nil {
		w.t.Error(err)
	}
}

func (w *world) drains(name string) {
	w.t.Helper()
	if _, err := w.drainer.Reconcile(w.t.Context(),
		reconcile.Request{NamespacedName: client.ObjectKey{Namespace: w.namespace, Name: name}}); err != nil &&
		!w.effects.isDead() {
		w.t.Fatalf("a worker's pass for %s: %v", name, err)
	}
}

// settleDrains runs several passes of the drain's workers. In the first pass, the workers may use an older list of
// attachments.
func (w *world) settleDrains(name string) {
	w.t.Helper()
	for range 2 {
		w.step(time.Second)
		w.drains(name)
	}
}

func (e *effects) isDead() bool { return e.alive() != nil }

func (w *world) isOutOfService(node string) bool {
	w.t.Helper()
	n := w.getNode(node)
	return n != nil && slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool {
		return t.ToString() == "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
	})
}

// Rule: out-of-service-taint.
func TestVolumesOfASilentNodeAreDetachedBeforeItIsDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.cloud.Shutdown = time.Minute
	node := w.createSilent("m", "db").Status.NodeRef.Name
	w.delete("m")

	// While the instance may still run, its volumes may be in use.
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonInstanceTerminating)
	w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonSkipped)
	if w.isOutOfService(node) {
		t.Fatal("the node has the out-of-service taint while its instance exists")
	}

	w.step(time.Minute)
	w.effects.clear()
	w.reconcile("m")
	want(t, "writes", w.effects.since("API"), "API Node patch", "API Machine patch status")
	if !w.isOutOfService(node) || len(w.cloud.LiveInstances()) > 0 {
		t.Fatalf("the node's taints are %v, %d instances remain", w.getNode(node).Spec.Taints, len(w.cloud.LiveInstances()))
	}
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonWaitingForVolumeDetach)
	since := w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonNodeOutOfService)
	if want := fmt.Sprintf("The instance is gone. Volumes still attached to node %s: db.", node); since.Message != want {
		t.Errorf("message is %q, want %q", since.Message, want)
	}
	if result := w.wantQuiet("m"); result.RequeueAfter == 0 {
		t.Error("no pass is scheduled in case the trigger of the volumes is lost")
	}

	// After a restart, the new process continues the same wait, and writes nothing.
	w.step(2 * time.Minute)
	w.restart()
	w.wantQuiet("m")
	c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionVolumesDetached)
	if !c.LastTransitionTime.Equal(&since.LastTransitionTime) {
		t.Error("the wait began again after a restart")
	}

	w.detach(t.Context(), "db")
	w.settleDrains("m")
	w.effects.clear()
	w.reconcile("m")
	want(t, "writes", w.effects.since("API"), "API Node delete", "API Machine patch")
	w.wantNothingLeft("m")
}

// Rule: out-of-service-taint.
func TestASilentNodeWithoutVolumesIsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.createSilent("m")
	w.attach("another-node", "another")
	w.delete("m")
	w.effects.clear()
	w.reconcile("m")
	want(t, "effects", w.effects.since(), "API Node patch", "cloud delete", "API Node delete", "API Machine patch")
	w.wantNothingLeft("m")
}

// Rule: out-of-service-taint.
func TestAttachedVolumesDelayTheDeletionOfASilentNodeOnlyForATime(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*world){
		"the time is over": func(w *world) {
			w.step(5*time.Minute - 2*time.Second)
			w.drains("m")
			w.wantQuiet("m")
			w.step(2 * time.Second)
			w.drains("m")
		},
		"the time is over for a new process": func(w *world) {
			w.step(5 * time.Minute)
			w.restart()
			w.reconcile("m")
		},
		"forced": func(w *world) { w.annotate("m", v1beta1.AnnotationForceDelete) },
		"the node is deleted by another client": func(w *world) {
			if err := w.api.Delete(t.Context(), w.getNode(nodeNameOf(w.namespace, "m"))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.createSilent("m", "db")
			w.delete("m")
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonNodeOutOfService)
			end(w)
			w.reconcile("m")
			w.wantNothingLeft("m")
		})
	}
}

// Rule: out-of-service-taint.
func TestOutOfServiceTaintNeedsKnownAttachments(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	node := w.createSilent("m", "db").Status.NodeRef.Name
	w.refuse = forbid[*storagev1.VolumeAttachmentList]
	w.delete("m")
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonNodeOutOfService)
	if w.isOutOfService(node) || !strings.Contains(c.Message, "forbidden") {
		t.Errorf("taints are %v, the message is %q", w.getNode(node).Spec.Taints, c.Message)
	}
	w.refuse = nil
	w.drains("m")
	w.reconcile("m")
	if !w.isOutOfService(node) {
		t.Error("the node is not out of service although a volume is attached to it")
	}

	// Even if the attachments cannot be read, the wait ends.
	w.refuse = forbid[*storagev1.VolumeAttachmentList]
	w.step(5 * time.Minute)
	w.restart()
	w.reconcile("m")
	w.drains("m")
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// The forced detachment has its own full timeout, even if the machine has already waited for the volumes before.
//
// Rule: out-of-service-taint.
func TestNodeThatFallsSilentGetsTheWholeDetachTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	node := w.running("m").Status.NodeRef.Name
	w.attach(node, "db")
	w.delete("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonWaitingForVolumeDetach)
	w.step(4 * time.Minute)
	w.setNodeReady(node, corev1.ConditionUnknown)
	w.reconcile("m")
	c := w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonNodeOutOfService)
	if c.LastTransitionTime.Time.Before(w.clock.Now().Add(-time.Second)) {
		t.Errorf("the wait began at %s, long before now", c.LastTransitionTime)
	}
	w.step(4 * time.Minute)
	w.drains("m")
	w.wantQuiet("m")
	w.detach(t.Context(), "db")
	w.settleDrains("m")
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rules: replacement-deletes-first, out-of-service-taint.
func TestTheVolumesOfASilentNodeAreDetachedBeforeItsReplacement(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.class("large", "")
	w.cloud.OnUpdate = func(provider.UpdateRequest) (provider.UpdateResult, error) {
		return provider.UpdateResult{Outcome: provider.UpdateNeedsReplacement, Reason: "of another size"}, nil
	}
	m := w.createSilent("m", "db")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = "large" })
	w.reconcile("m")
	if !w.isOutOfService(m.Status.NodeRef.Name) || len(w.cloud.LiveInstances()) > 0 {
		t.Fatalf("the node is not out of service, or %d instances remain: %s", len(w.cloud.LiveInstances()), summaryOf(w.get("m")))
	}
	w.wantPhase(w.get("m"), v1beta1.MachineUpdating)
	w.detach(t.Context(), "db")
	w.settleDrains("m")
	w.reconcile("m")
	if w.getNode(m.Status.NodeRef.Name) != nil || len(w.cloud.LiveInstances()) != 1 {
		t.Errorf("the old node remains, or there are %d instances: %s", len(w.cloud.LiveInstances()), summaryOf(w.get("m")))
	}
	if c := meta.FindStatusCondition(w.get("m").Status.Conditions, v1beta1.ConditionVolumesDetached); c != nil {
		t.Errorf("the new instance has the condition %+v", c)
	}
}

// The deletion of an unreachable node is interrupted at each of its effects. The volumes are always detached first.
//
// Rules: crash-safe-everywhere, out-of-service-taint.
func TestCrashesDuringTheDeletionOfASilentNode(t *testing.T) {
	t.Parallel()
	for _, mode := range []effectCut{{losesAnswer: true, dies: true}, {losesAnswer: true}, {losesAnswer: false}} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			for at := 1; ; at++ {
				w := newWorld(t)
				w.class("small", "")
				node := w.createSilent("m", "db").Status.NodeRef.Name
				w.delete("m")
				w.effects.seen = 0
				w.effects.next = effectCut{effectNumber: at, losesAnswer: mode.losesAnswer, dies: mode.dies}
				outOfService := false
				w.runUntil("m", "the deletion of the machine", func() bool {
					if w.isOutOfService(node) && !outOfService {
						outOfService = true // The attach/detach controller does this then.
						w.detach(t.Context(), "db")
					}
					w.step(time.Second)
					w.drains("m")
					return w.get("m") == nil
				})
				if !outOfService {
					t.Errorf("interrupted at effect %d (%s): the node was deleted without being out of service", at, w.effects.struck)
				}
				w.wantNothingLeft("m")
				if w.effects.struck == "" {
					if at < 6 {
						t.Errorf("there were only %d effects", at-1)
					}
					return
				}
			}
		})
	}
}

func forbid[T runtime.Object](_ string, o runtime.Object) error {
	if _, ok := o.(T); ok {
		return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("no"))
	}
	return nil
}

// Rule: drain-names-blockers.
func TestDrainThatCannotReadPodsIsReported(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.events.take()
	w.refuse = forbid[*corev1.PodList]
	w.delete("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDrainError)
	c := w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonDraining)
	if !strings.Contains(c.Message, "does not evict pods that it cannot see") ||
		!strings.Contains(c.Message, v1beta1.AnnotationForceDelete) {
		t.Errorf("message is %q", c.Message)
	}
	w.drains("m")
	w.wantQuiet("m")
	w.step(24 * time.Hour) // past any deadline
	w.drains("m")
	w.reconcile("m")
	if len(w.cloud.LiveInstances()) != 1 {
		t.Error("the instance was deleted although its pods could not be read")
	}
	want(t, "events", reasons(w.events.take()), v1beta1.ReasonDrainError)
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// If the container runtime has failed or the disk is read-only, a kubelet may still update the status of its Node, but
// cannot end pods.
//
// Rule: unready-node-pods-gone-later.
func TestUnreadyNodeDoesNotDelayADeletionForHours(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.cloud.Shutdown = time.Minute
	m := w.running("m")
	node := m.Status.NodeRef.Name
	w.podOn(node)
	w.attach(node, "db")
	n := w.getNode(node)
	before := n.DeepCopy()
	n.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady",
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	}}
	if err := w.api.Status().Patch(t.Context(), n, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.delete("m")
	w.reconcile("m")
	w.drains("m") // The pod is evicted, but its kubelet never ends it.
	for range 5 {
		w.step(time.Minute)
		w.drains("m")
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "False", v1beta1.ReasonDraining)
	}
	pod := &corev1.Pod{}
	if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "work"}, pod); err != nil ||
		pod.DeletionTimestamp == nil {
		t.Fatalf("the pod is not terminating: %v", err)
	}
	w.step(40 * time.Second)
	w.drains("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDrained, "True", v1beta1.ReasonDrained)
	w.wantCondition(w.get("m"), v1beta1.ConditionVolumesDetached, "False", v1beta1.ReasonSkipped)
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonInstanceTerminating)
	if w.isOutOfService(node) {
		t.Error("the node has the out-of-service taint while its instance exists")
	}
	w.step(time.Minute)
	w.reconcile("m")
	if !w.isOutOfService(node) || len(w.cloud.LiveInstances()) > 0 {
		t.Errorf("the node's taints are %v, %d instances remain", w.getNode(node).Spec.Taints, len(w.cloud.LiveInstances()))
	}
}
