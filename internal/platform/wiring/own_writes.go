package wiring

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// OwnWrites records a reconciler's own writes to each object until their events arrive. A reconciler's own write of a
// status need not trigger it again. The same write by the previous process, whose event arrives only now, must. The
// zero value is ready to use.
//
// OwnWrites records more than the last write. Otherwise, if a second write is made before the event of the first one
// arrives, that event would look like another client's write. It would trigger a pass, which would write again, and so
// on.
type OwnWrites struct {
	mu       sync.Mutex
	versions map[types.UID][]string
}

// maxPending is the greatest number of recorded writes per object, because a cache may receive no events for a long
// time.
const maxPending = 16

// Record records an object as returned by a write of this reconciler.
func (e *OwnWrites) Record(o client.Object) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.versions == nil {
		e.versions = map[types.UID][]string{}
	}
	versions := append(e.versions[o.GetUID()], o.GetResourceVersion())
	e.versions[o.GetUID()] = versions[max(0, len(versions)-maxPending):]
}

// consume reports whether this reconciler wrote the object in this version. It forgets this write and all earlier ones,
// because their events can no longer arrive.
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

// Filter returns a predicate that passes the events that changes passes, and all events of other clients' writes. If
// the event of this reconciler's write arrives before the answer to that write, it counts as another client's write.
// This costs one unnecessary pass.
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
