package cloud

import (
	"container/heap"
	"time"
)

// agenda is a heap of instances, ordered by the times of their next changes.
type agenda []*instance

func (a agenda) Len() int           { return len(a) }
func (a agenda) Less(i, j int) bool { return a[i].due.Before(a[j].due) }
func (a agenda) Swap(i, j int) {
	a[i], a[j] = a[j], a[i]
	a[i].agendaIndex, a[j].agendaIndex = i, j
}

func (a *agenda) Push(x any) {
	inst := x.(*instance)
	inst.agendaIndex = len(*a)
	*a = append(*a, inst)
}

func (a *agenda) Pop() any {
	old := *a
	inst := old[len(old)-1]
	old[len(old)-1] = nil
	*a = old[:len(old)-1]
	inst.agendaIndex = -1
	return inst
}

// set sets the time of the next change of an instance. A zero time removes the instance from the agenda.
func (a *agenda) set(inst *instance, due time.Time) {
	inst.due = due
	switch {
	case due.IsZero() && inst.agendaIndex >= 0:
		heap.Remove(a, inst.agendaIndex)
	case due.IsZero():
	case inst.agendaIndex >= 0:
		heap.Fix(a, inst.agendaIndex)
	default:
		heap.Push(a, inst)
	}
}
