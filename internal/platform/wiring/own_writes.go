package wiring

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// OwnWrites records the writes of a reconciler until their events arrive. The event of a reconciler's own status update
// need not trigger the reconciler again. The event of a status update by the previous process must trigger the
// reconciler. The zero value is ready to use.
//
// OwnWrites records several writes of an object, because the event of the first write may arrive after the second
// write. If that event counted as a write of another client, it would trigger a pass and another write, and the cycle
// would repeat.
type OwnWrites struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// maxPending is the maximum number of recorded writes per object, because a cache may receive no events for a long
// time.
const maxPending = 16

// Record must be called after each write of this reconciler, with the object that the write returned.
func (e *OwnWrites) Record(o client.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions == nil {
		e.versions = map[types.UID][]string{}
	}
	versions := append(e.versions[o.GetUID()], o.GetResourceVersion())
	e.versions[o.GetUID()] = versions[max(0, len(versions)-maxPending):]
}

// consume reports whether this reconciler wrote this version of the object. The method then forgets this write and
// all earlier writes, because their events cannot arrive any more.
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

// Filter returns a predicate that drops the events of this reconciler's own writes. Events that the given predicate
// accepts are never dropped. An event that arrives before the response to its write counts as another client's event.
// The wrong assignment costs one unnecessary pass.
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
