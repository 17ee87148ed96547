package healthcheck

import (
	"context"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// recordingGone returns a handler that also records replaced machines that are gone. A machine may fail, be deleted and
// be replaced between two passes.
func (r *Reconciler) recordingGone(to handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc:  to.Create,
		UpdateFunc:  to.Update,
		GenericFunc: to.Generic,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if m, ok := e.Object.(*v1beta1.Machine); ok {
				r.state.recordGone(m, r.Clock.Now())
			}
			to.Delete(ctx, e, q)
		},
	}
}

func (m *state) recordGone(gone *v1beta1.Machine, now time.Time) {
	owner := metav1.GetControllerOfNoCopy(gone)
	if owner == nil || !wasReplaced(gone) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.goneMachines == nil {
		m.goneMachines = map[types.UID][]Predecessor{}
	}
	m.goneMachines[owner.UID] = append(m.goneMachines[owner.UID], predecessorOf(gone, now))
}

// takeGone returns the known predecessors of each set, including machines that were deleted since the last call.
func (m *state) takeGone() map[types.UID][]Predecessor {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.predecessors)
	for set, gone := range m.goneMachines {
		for _, v := range gone {
			if !hasPredecessor(all[set], v.UID) {
				all[set] = append(all[set][:len(all[set]):len(all[set])], v)
			}
		}
	}
	m.goneMachines = nil
	return all
}
