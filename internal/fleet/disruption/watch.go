package disruption

import (
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"machinist.dev/machinist/api/v1beta1"
)

// EndPredicate returns a predicate that selects the events with which the disruption of a machine ends. After such
// an event, a budget may allow the disruption of another machine.
func EndPredicate() predicate.Predicate {
	disrupted := func(o client.Object) bool {
		m, ok := o.(*v1beta1.Machine)
		if !ok {
			return false
		}
		_, is := ReasonOf(m)
		return is
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool { return disrupted(e.ObjectOld) && !disrupted(e.ObjectNew) },
		DeleteFunc: func(e event.DeleteEvent) bool { return disrupted(e.Object) },
	}
}
