package machinedeployment

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: changed-spec-goes-first.
func TestAScaledDeploymentGoesAheadOfNewOnes(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	was, is := &v1beta1.MachineDeployment{}, &v1beta1.MachineDeployment{}
	was.Name, was.Generation, is.Name, is.Generation = "good", 1, "good", 2
	for _, w := range New(Options{}).Wiring().AllWatches() {
		if e := (event.UpdateEvent{ObjectOld: was, ObjectNew: is}); sameKind(w.Object) && w.Predicate.Update(e) {
			w.Keys.Update(t.Context(), e, q)
		}
	}
	if _, priority, _ := q.GetWithPriority(); priority <= 0 {
		t.Errorf("a deployment that was scaled has the priority %d of new ones", priority)
	}
}

func sameKind(object any) bool {
	_, ok := object.(*v1beta1.MachineDeployment)
	return ok
}
