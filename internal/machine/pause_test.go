package machine

import (
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Rules: join-timeout-fails-machine, paused-machine-untouched.
func TestPauseDoesNotCountAfterAFailedLaunch(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", "")
	w.createMachine("m")
	failure := provider.Errorf(provider.Unavailable, "no")
	w.cloud.Fail("Create", failure, failure)
	w.reconcile("m")
	w.annotate("m", v1beta1.AnnotationPaused)
	w.reconcile("m")
	w.step(2 * v1beta1.DefaultCreationTimeout)
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationPaused) })
	w.reconcile("m")
	if m := w.get("m"); m.Status.FailureReason != "" {
		t.Fatalf("the time of the pause counts: %s: %s", m.Status.FailureReason, m.Status.FailureMessage)
	}
	w.step(time.Minute)
	w.untilPhase("m", v1beta1.MachineRunning)
}

// Rule: paused-machine-untouched.
func TestAnAdministratorUncordonsTheNodeOfAPausedPreservedMachine(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m", ofASet)
	w.annotateWith("m", v1beta1.AnnotationPreserve, v1beta1.PreserveNow)
	w.reconcile("m")
	w.annotate("m", v1beta1.AnnotationPaused)
	w.reconcile("m")
	node := w.getNode(m.Status.NodeRef.Name)
	if !node.Spec.Unschedulable {
		t.Fatal("the node of a preserved machine is not cordoned")
	}
	before := node.DeepCopy()
	node.Spec.Unschedulable, node.Spec.Taints = false, nil
	if err := w.api.Patch(t.Context(), node, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	w.reconcile("m")
	if w.getNode(node.Name).Spec.Unschedulable {
		t.Error("the node of a paused machine is cordoned again")
	}
}
