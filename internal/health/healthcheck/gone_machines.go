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

// rememberingGone records machines that were replaced and are gone. A machine that fails before it has a Node may be
// deleted, and another one created, between two passes, so that no pass sees it.
func (r *Reconciler) rememberingGone(to handler.EventHandler) handler.EventHandler {
	type queue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	return handler.Funcs{
		CreateFunc:  to.Create,
		UpdateFunc:  to.Update,
		GenericFunc: to.Generic,
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q queue) {
			if m, ok := e.Object.(*v1beta1.Machine); ok {
				r.state.remember(m, r.Clock.Now())
			}
			to.Delete(ctx, e, q)
		},
	}
}

// remember records a machine that is gone, if it was replaced.
func (m *state) remember(gone *v1beta1.Machine, now time.Time) {
	owner := metav1.GetControllerOfNoCopy(gone)
	if owner == nil || !wasReplaced(gone) {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.gone == nil {
		m.gone = map[types.UID][]Vacancy{}
	}
	m.gone[owner.UID] = append(m.gone[owner.UID], vacancyOf(gone, now))
}

// takeGone returns the vacancies by set that were found before, with those of machines that are gone since.
func (m *state) takeGone() map[types.UID][]Vacancy {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := maps.Clone(m.vacancies)
	for set, gone := range m.gone {
		for _, v := range gone {
			if !hasVacancy(all[set], v.UID) {
				all[set] = append(all[set][:len(all[set]):len(all[set])], v)
			}
		}
	}
	m.gone = nil
	return all
}
