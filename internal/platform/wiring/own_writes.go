package wiring

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// OwnWrites knows a reconciler's own writes of each object whose events have yet to come. What a reconciler writes
// into a status is no change to it; the same written by the process before it, which a late cache shows only now, is.
// The zero value is ready to use.
//
// It knows more than the last one: where a second write is made before the event of the first has come, that event
// would be taken for another's, the pass that it triggers would write as well, and so on for ever.
type OwnWrites struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// maxPending bounds what is known of one object: a cache may stand still.
const maxPending = 16

// Record notes an object as a write of this reconciler returned it.
func (e *OwnWrites) Record(o client.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions == nil {
		e.versions = map[types.UID][]string{}
	}
	versions := append(e.versions[o.GetUID()], o.GetResourceVersion())
	e.versions[o.GetUID()] = versions[max(0, len(versions)-maxPending):]
}

// consume reports whether the object is as this reconciler wrote it. What it wrote before that never comes any more.
func (e *OwnWrites) consume(o client.Object) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	versions := e.versions[o.GetUID()]
	i := slices.Index(versions, o.GetResourceVersion())
	if i < 0 {
		return false
	}
	if i == len(versions)-1 {
		delete(e.versions, o.GetUID())
	} else {
		e.versions[o.GetUID()] = versions[i+1:]
	}
	return true
}

// Filter lets through what news lets through, and whatever else others have written. An event that overtakes the
// answer to the write that it tells of counts as others': one check too many.
func (e *OwnWrites) Filter(changes predicate.Predicate) predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: changes.Create,
		UpdateFunc: func(u event.UpdateEvent) bool {
			own := e.consume(u.ObjectNew) || u.ObjectNew.GetResourceVersion() == u.ObjectOld.GetResourceVersion()
			return changes.Update(u) || !own
		},
		DeleteFunc: func(d event.DeleteEvent) bool {
			e.forget(d.Object.GetUID())
			return changes.Delete(d)
		},
		GenericFunc: changes.Generic,
	}
}

func (e *OwnWrites) forget(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.versions, uid)
}
