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

func TestAnEchoIsWhatOneWroteLast(t *testing.T) {
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
		{"what the process before wrote", "a", "3", "4", true},
		{"the own write", "a", "4", "5", false},
		{"the same again", "a", "5", "5", false},
		{"a later write of somebody else", "a", "5", "6", true},
		{"the first of two own writes", "c", "1", "2", false},
		{"a write of somebody else between them", "c", "2", "3", true},
		{"the second", "c", "3", "4", false},
		{"the last of three, where the events of the others are merged with it", "d", "1", "4", false},
		{"what was merged, anyway", "d", "1", "3", true},
		{"an object that one never wrote", "b", "4", "5", true},
	} {
		if got := update(tc.uid, tc.from, tc.to); got != tc.triggers {
			t.Errorf("%s triggers: %t", tc.what, got)
		}
	}
	e.Record(object("a", "7"))
	others.Delete(event.DeleteEvent{Object: object("a", "8")})
	if len(e.versions) != 0 {
		t.Errorf("what is gone is remembered: %v", e.versions)
	}
	changes := e.Filter(predicate.Funcs{})
	e.Record(object("a", "9"))
	if !changes.Update(event.UpdateEvent{ObjectOld: object("a", "8"), ObjectNew: object("a", "9")}) {
		t.Error("an own write that is news does not trigger")
	}
}
