package wiring

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

func object(uid types.UID, version string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: uid, ResourceVersion: version}}
}

func TestFilterDropsEventsOfOwnWrites(t *testing.T) {
	t.Parallel()
	e := &OwnWrites{}
	nothing := predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
	others := e.Filter(nothing)
	update := func(uid types.UID, from, to string) bool {
		return others.Update(event.UpdateEvent{ObjectOld: object(uid, from), ObjectNew: object(uid, to)})
	}
	e.Record(object("a", "5"))
	for _, version := range []string{"2", "4"} {
		e.Record(object("c", version))
	}
	for _, version := range []string{"2", "3", "4"} {
		e.Record(object("d", version))
	}
	for _, tc := range []struct {
		what     string
		uid      types.UID
		from, to string
		triggers bool
	}{
		{"a write of the previous process", "a", "3", "4", true},
		{"an own write", "a", "4", "5", false},
		{"the same version again", "a", "5", "5", false},
		{"a later write of another client", "a", "5", "6", true},
		{"the first of two own writes", "c", "1", "2", false},
		{"a write of another client between them", "c", "2", "3", true},
		{"the second of two own writes", "c", "3", "4", false},
		{"the last of three own writes, merged with the events of the others", "d", "1", "4", false},
		{"an own write whose event was merged", "d", "1", "3", true},
		{"an object without own writes", "b", "4", "5", true},
	} {
		if got := update(tc.uid, tc.from, tc.to); got != tc.triggers {
			t.Errorf("%s: triggers is %t, want %t", tc.what, got, tc.triggers)
		}
	}
	e.Record(object("a", "7"))
	others.Delete(event.DeleteEvent{Object: object("a", "8")})
	if len(e.versions) != 0 {
		t.Errorf("writes to a deleted object are remembered: %v", e.versions)
	}
	changes := e.Filter(predicate.Funcs{})
	e.Record(object("a", "9"))
	if !changes.Update(event.UpdateEvent{ObjectOld: object("a", "8"), ObjectNew: object("a", "9")}) {
		t.Error("an own write that the predicate passes does not trigger")
	}
}
