package wiring

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// Echo knows a reconciler's own last write of each object. What a reconciler writes into a status is no news to it; the
// same written by the process before it, which a late cache shows only now, is. The zero value is ready to use.
type Echo struct {
	mu       sync.Mutex
	versions map[types.UID]string
}

// Wrote notes an object as a write of this reconciler returned it.
func (e *Echo) Wrote(o client.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions == nil {
		e.versions = map[types.UID]string{}
	}
	e.versions[o.GetUID()] = o.GetResourceVersion()
}

// heard reports whether the object is as this reconciler wrote it last.
func (e *Echo) heard(o client.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions[o.GetUID()] != o.GetResourceVersion() {
		return false
	}
	delete(e.versions, o.GetUID())
	return true
}

// Others lets through what news lets through, and whatever else others have written. An event that overtakes the answer to
// the write that it tells of counts as others': one look too many.
func (e *Echo) Others(news predicate.Predicate) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: news.Create,
		UpdateFunc: func(u event.UpdateEvent) bool {
			own := e.heard(u.ObjectNew) || u.ObjectNew.GetResourceVersion() == u.ObjectOld.GetResourceVersion()
			return news.Update(u) || !own
		},
		DeleteFunc: func(d event.DeleteEvent) bool {
			e.forget(d.Object.GetUID())
			return news.Delete(d)
		},
		GenericFunc: news.Generic,
	}
}

func (e *Echo) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.versions, uid)
}

// CopyTo makes another Echo know the same.
func (e *Echo) CopyTo(other *Echo) {
	e.mu.Lock()
	defer e.mu.Unlock()
	other.versions = maps.Clone(e.versions)
}
