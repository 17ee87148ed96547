package simulation

import (
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
)

// relist replaces the content of the view by a new list, like an informer that has lost its watch. If an object has
// changed several times, the view shows only its last state. If an object was deleted, it is not in the list.
func (v *view) relist() error {
	before := v.objects
	if err := v.fill(0); err != nil {
		return err
	}
	var deleted []client.Object
	for i, j := 0, 0; i < len(before) || j < len(v.objects); {
		order := 0
		switch {
		case i == len(before):
			order = 1
		case j == len(v.objects):
			order = -1
		default:
			order = compareKeys(client.ObjectKeyFromObject(before[i]), client.ObjectKeyFromObject(v.objects[j]))
		}
		switch {
		case order < 0:
			deleted = append(deleted, before[i])
			i++
		case order > 0:
			v.announce(event.CreateEvent{Object: v.objects[j]})
			j++
		default:
			if before[i].GetResourceVersion() != v.objects[j].GetResourceVersion() {
				v.announce(event.UpdateEvent{ObjectOld: before[i], ObjectNew: v.objects[j]})
			}
			i, j = i+1, j+1
		}
	}
	for _, o := range deleted {
		v.announce(event.DeleteEvent{Object: o, DeleteStateUnknown: true})
	}
	return nil
}

func (v *view) elapse(w *World) error {
	now := w.clock.at
	if !v.mergedUntil.IsZero() && !now.Before(v.mergedUntil) {
		v.mergedUntil = time.Time{}
	}
	if v.frozenUntil.IsZero() || now.Before(v.frozenUntil) || v.unreachable() {
		return nil
	}
	v.frozenUntil = time.Time{}
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	if v.lost {
		return v.relist()
	}
	return nil
}
