package machine

import (
	"slices"
	"testing"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// A typing error in the end of the preservation must not delete a machine that works.
//
// Rule: preserved-until-is-in-the-future.
func TestPastTimeDoesNotDeleteAMachineThatWasNeverPreserved(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", ofASet)
	past := w.clock.Now().Add(-time.Hour).UTC().Format(time.RFC3339)
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, past)
	w.events.take()
	w.reconcile("m")
	m := w.get("m")
	_, there := m.Annotations[v1beta1.AnnotationPreservedUntil]
	if !m.DeletionTimestamp.IsZero() || there || len(m.OwnerReferences) != 1 || w.getNode(nodeNameOf(w.namespace,
		"m")).Spec.Unschedulable {
		t.Errorf("deleted: %t, annotation: %t, owners %v", !m.DeletionTimestamp.IsZero(), there, m.OwnerReferences)
	}
	if got := reasons(w.events.take()); !slices.Contains([]string{v1beta1.ReasonInvalidConfiguration}, got[0]) {
		t.Errorf("events %v", got)
	}

	// An administrator may set the annotation to a past time to end the preservation of a machine.
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, w.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339))
	w.reconcile("m")
	w.annotateWith("m", v1beta1.AnnotationPreservedUntil, past)
	w.reconcile("m")
	if m := w.get("m"); m != nil && m.DeletionTimestamp.IsZero() {
		t.Error("a preserved machine remains although its time is over")
	}
}
