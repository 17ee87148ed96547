package simulation

import (
	"errors"
	"fmt"
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
)

type testController struct {
	testOptions
	notify func()
	state  *testState
	slots  *queueing.Slots
}

type testOptions struct{ Name string }

type testState struct {
	machines map[string]*testEntry
	counts   map[string]map[string]int
	names    []string
	since    time.Time
	hash     [2]byte
}

type testEntry struct {
	uids    []types.UID
	err     error
	machine *v1beta1.Machine
}

func newTestController(name string) *testController {
	return &testController{testOptions: testOptions{name}, notify: func() {}, state: &testState{},
		slots: queueing.NewSlots(1)}
}

func TestInheritCopiesMemory(t *testing.T) {
	fill := func(r *testController, machine *v1beta1.Machine) *testController {
		*r.state = testState{
			machines: map[string]*testEntry{"a": {[]types.UID{"1", "2"}, errors.ErrUnsupported, machine}, "none": nil},
			counts:   map[string]map[string]int{"a": {"b": 1}, "none": nil},
			names:    []string{"a"}, since: time.Unix(7, 0), hash: [2]byte{1, 2},
		}
		r.slots.Acquire(types.NamespacedName{Name: "a"})
		r.slots.Acquire(types.NamespacedName{Name: "b"})
		return r
	}
	machine := &v1beta1.Machine{}
	origin, successor := fill(newTestController("origin"), machine), newTestController("successor")
	state := successor.state
	inherit(successor, origin)
	if successor.state != state || successor.Name != "successor" || successor.notify == nil {
		t.Error("inherit replaced what connects the successor with its process")
	}
	if !reflect.DeepEqual(successor.state, origin.state) || !reflect.DeepEqual(successor.slots, origin.slots) {
		t.Errorf("got memory\n%+v, want that of the origin\n%+v", successor.state, origin.state)
	}
	if successor.state.machines["a"].machine != machine {
		t.Error("an API object was copied although it is immutable")
	}
	if !errors.Is(successor.state.machines["a"].err, errors.ErrUnsupported) {
		t.Error("an error was not copied")
	}
	successor.state.machines["a"].uids[0], successor.state.machines["b"] = "changed", &testEntry{}
	successor.state.counts["a"]["b"], successor.state.names[0] = 9, "changed"
	successor.slots.Release(types.NamespacedName{Name: "a"})
	if want := fill(newTestController("origin"), machine); !reflect.DeepEqual(origin.state, want.state) ||
		!reflect.DeepEqual(origin.slots, want.slots) {
		t.Errorf("the origin changed together with its successor: %+v", origin.state)
	}
}

// If a new field has a type that cannot be copied, inherit must panic when it first copies the field. Otherwise, two
// controllers could share the value of this field unnoticed.
func TestInheritPanicsForMemoryThatCannotBeCopied(t *testing.T) {
	type controller struct{ calls map[string]func() }
	defer func() {
		if got, want := fmt.Sprint(recover()), "a controller stores a func(), which cannot be copied"; got != want {
			t.Errorf("got panic %q, want %q", got, want)
		}
	}()
	inherit(&controller{}, &controller{calls: map[string]func(){}})
}
