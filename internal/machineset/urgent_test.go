package machineset

import (
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// S-27.
func TestAScaledSetGoesAheadOfNewOnes(t *testing.T) {
	q := priorityqueue.New[reconcile.Request]("test")
	defer q.ShutDown()
	was, is := &v1beta1.MachineSet{}, &v1beta1.MachineSet{}
	was.Name, was.Generation, is.Name, is.Generation = "good", 1, "good", 2
	for _, w := range New(Options{}).Wiring().AllWatches() {
		e := event.UpdateEvent{ObjectOld: was, ObjectNew: is}
		if _, ok := w.Object.(*v1beta1.MachineSet); ok && w.Predicate.Update(e) {
			w.Keys.Update(t.Context(), e, q)
		}
	}
	if _, priority, _ := q.GetWithPriority(); priority <= 0 {
		t.Errorf("a set that was scaled has the priority %d of new ones", priority)
	}
}
