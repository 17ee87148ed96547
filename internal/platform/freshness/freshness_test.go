package freshness

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// A controller that treats an ambiguous write as failed repeats the write, and so creates an extra machine or set.
//
// Rules: exact-number-of-machines, first-decision-from-live-lists.
func TestAmbiguous(t *testing.T) {
	machines := schema.GroupResource{Group: "machinist.dev", Resource: "machines"}
	// response returns the error that client-go creates for a response without a Status, such as a response of a proxy.
	response := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "POST", machines, "a", "", 0, true)
	}
	status := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
	}
	for _, test := range []struct {
		name string
		err  error
		want bool
	}{
		{"no error", nil, false},
		{"conflict", apierrors.NewConflict(machines, "a", errors.New("changed")), false},
		{"exists already", apierrors.NewAlreadyExists(machines, "a"), false},
		{"forbidden by a quota", apierrors.NewForbidden(machines, "a", errors.New("quota")), false},
		{"too many requests", apierrors.NewTooManyRequests("later", 1), false},
		{"invalid", apierrors.NewInvalid(schema.GroupKind{}, "a", nil), false},
		{"not found", apierrors.NewNotFound(machines, "a"), false},
		{"rejected with a status without a reason", response(http.StatusRequestHeaderFieldsTooLarge), false},
		{"rejected with a reason of a webhook", status(http.StatusTeapot, "Policy"), false},
		{"timeout", apierrors.NewTimeoutError("too long", 1), true},
		{"server timeout", apierrors.NewServerTimeout(machines, "create", 1), true},
		{"internal error", apierrors.NewInternalError(errors.New("etcd")), true},
		{"unavailable", apierrors.NewServiceUnavailable("starting"), true},
		{"the server cannot read what it stored", status(http.StatusInternalServerError, metav1.StatusReasonStoreReadError),
			true},
		{"bad gateway", response(http.StatusBadGateway), true},
		{"gateway timeout", response(http.StatusGatewayTimeout), true},
		{"a status without a code", status(0, metav1.StatusReasonConflict), true},
		{"no response in time", context.DeadlineExceeded, true},
		{"the connection broke", fmt.Errorf("create machine: %w", io.ErrUnexpectedEOF), true},
		{"a wrapped conflict", fmt.Errorf("patch set a: %w", apierrors.NewConflict(machines, "a", errors.New("changed"))),
			false},
	} {
		if got := Ambiguous(test.err); got != test.want {
			t.Errorf("%s (%v): %t, want %t", test.name, test.err, got, test.want)
		}
	}
}

func TestAtLeastAsNew(t *testing.T) {
	for _, test := range []struct {
		version, other string
		want           bool
	}{
		{"100", "100", true},
		{"101", "100", true},
		{"99", "100", false},
		{"1000", "999", true},
		{"", "100", false},
		{"100", "", false},
		{"", "", false},
		{"x", "100", false},
	} {
		if got := AtLeastAsNew(test.version, test.other); got != test.want {
			t.Errorf("%q is at least as new as %q: %t, want %t", test.version, test.other, got, test.want)
		}
	}
}

func TestSameObjects(t *testing.T) {
	list := func(versions ...string) (machines []*v1beta1.Machine) {
		for i, version := range versions {
			if version != "" {
				uid := fmt.Sprint("uid-", i)
				machines = append(machines,
					&v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), ResourceVersion: version}})
			}
		}
		return machines
	}
	for name, test := range map[string]struct {
		cached, live []*v1beta1.Machine
		want         bool
	}{
		"none":                   {nil, nil, true},
		"the same":               {list("5", "6"), list("5", "6"), true},
		"newer":                  {list("5", "7"), list("5", "6"), true},
		"older":                  {list("5", "6"), list("5", "7"), false},
		"one is missing":         {list("5"), list("5", "6"), false},
		"one was deleted":        {list("5", "6"), list("5"), false},
		"another object instead": {list("5", "6", ""), list("5", "", "6"), false},
	} {
		if got := SameObjects(test.cached, test.live); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}

func TestTracker(t *testing.T) {
	for name, test := range map[string]struct {
		steps          func(*Tracker)
		trusted, stale []string
		min            string
	}{
		"a new process": {func(*Tracker) {}, nil, []string{"", "1", "100"}, ""},
		"after a LIST": {func(k *Tracker) { k.RecordList(k.Mark(), "100") }, []string{"100", "101"},
			[]string{"", "99"}, "100"},
		"the first LIST suffices": {func(k *Tracker) { k.RecordList(k.Mark(), "100"); k.RecordList(k.Mark(), "200") },
			[]string{"100"}, []string{"99"}, "100"},
		"a decision depends on a later LIST": {func(k *Tracker) { k.RecordList(k.Mark(), "100"); k.RecordRelist(k.Mark(), "200") },
			[]string{"200"}, []string{"199"}, "200"},
		"after an ambiguous write": {func(k *Tracker) { k.RecordList(k.Mark(), "100"); k.Invalidate() }, nil,
			[]string{"100", "200"}, ""},
		"a LIST after an ambiguous write": {func(k *Tracker) {
			k.RecordList(k.Mark(), "100")
			k.Invalidate()
			k.RecordList(k.Mark(), "200")
		}, []string{"200"}, []string{"199"}, "200"},
		"the cache was compared": {func(k *Tracker) { k.Confirm(k.Mark()) }, []string{"", "1"}, nil, ""},
		"compared, then an ambiguous write": {func(k *Tracker) { k.Confirm(k.Mark()); k.Invalidate() }, nil,
			[]string{"", "1"}, ""},
		"an ambiguous write during a LIST":    {duringList((*Tracker).RecordList), nil, []string{"100", "200"}, ""},
		"an ambiguous write during a re-LIST": {duringList((*Tracker).RecordRelist), nil, []string{"100", "200"}, ""},
		"an ambiguous write while comparing": {duringList(func(k *Tracker, m Mark, _ string) { k.Confirm(m) }), nil,
			[]string{"", "200"}, ""},
	} {
		var k Tracker
		test.steps(&k)
		for _, version := range test.trusted {
			if !k.Trusts(version) {
				t.Errorf("%s: a cache at %q is not trusted", name, version)
			}
		}
		for _, version := range test.stale {
			if k.Trusts(version) {
				t.Errorf("%s: a cache at %q is trusted", name, version)
			}
		}
		if got := k.MinVersion(); got != test.min {
			t.Errorf("%s: MinVersion() = %q, want %q", name, got, test.min)
		}
	}
}

func duringList(record func(*Tracker, Mark, string)) func(*Tracker) {
	return func(k *Tracker) {
		began := k.Mark()
		k.Invalidate()
		record(k, began, "100")
	}
}

func TestDecisions(t *testing.T) {
	var d Decisions
	if d.Has("a", 1) {
		t.Error("generation 1 is known although nothing was noted")
	}
	d.Note("a", 2)
	d.Note("b", 1)
	for generation, want := range map[int64]bool{1: false, 2: true, 3: false} {
		if got := d.Has("a", generation); got != want {
			t.Errorf("generation %d: known is %t, expected %t", generation, got, want)
		}
	}
	d.Forget("a")
	if d.Has("a", 2) || !d.Has("b", 1) {
		t.Error("Forget removed the wrong object")
	}
	var none *Decisions
	none.Note("a", 1)
	none.Forget("a")
	if none.Has("a", 1) {
		t.Error("a nil *Decisions contains a generation")
	}
}
