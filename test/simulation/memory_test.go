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

// rememberer is built as controllers are.
type rememberer struct {
	remembererOptions
	notify func()
	state  *rememberedState
	slots  *queueing.Slots
}

type remembererOptions struct{ Name string }

type rememberedState struct {
	machines map[string]*remembered
	counts   map[string]map[string]int
	names    []string
	since    time.Time
	hash     [2]byte
}

type remembered struct {
	uids    []types.UID
	err     error
	machine *v1beta1.Machine
}

func newRememberer(name string) *rememberer {
	return &rememberer{remembererOptions: remembererOptions{name}, notify: func() {}, state: &rememberedState{},
		slots: queueing.NewSlots(1)}
}

func TestInheritedMemoryIsEqualAndSeparate(t *testing.T) {
	fill := func(r *rememberer, machine *v1beta1.Machine) *rememberer {
		*r.state = rememberedState{
			machines: map[string]*remembered{"a": {[]types.UID{"1", "2"}, errors.ErrUnsupported, machine}, "none": nil},
			counts:   map[string]map[string]int{"a": {"b": 1}, "none": nil},
			names:    []string{"a"}, since: time.Unix(7, 0), hash: [2]byte{1, 2},
		}
		r.slots.Acquire(types.NamespacedName{Name: "a"})
		r.slots.Acquire(types.NamespacedName{Name: "b"})
		return r
	}
	machine := &v1beta1.Machine{}
	origin, heir := fill(newRememberer("origin"), machine), newRememberer("heir")
	state := heir.state
	inherit(heir, origin)
	if heir.state != state || heir.Name != "heir" || heir.notify == nil {
		t.Error("what connects the heir with its process was exchanged")
	}
	if !reflect.DeepEqual(heir.state, origin.state) || !reflect.DeepEqual(heir.slots, origin.slots) {
		t.Errorf("the heir knows\n%+v, its origin\n%+v", heir.state, origin.state)
	}
	if heir.state.machines["a"].machine != machine {
		t.Error("an API object, which nobody changes, was copied")
	}
	if !errors.Is(heir.state.machines["a"].err, errors.ErrUnsupported) {
		t.Error("an error was not copied")
	}
	heir.state.machines["a"].uids[0], heir.state.machines["b"] = "changed", &remembered{}
	heir.state.counts["a"]["b"], heir.state.names[0] = 9, "changed"
	heir.slots.Release(types.NamespacedName{Name: "a"})
	if want := fill(newRememberer("origin"), machine); !reflect.DeepEqual(origin.state, want.state) ||
		!reflect.DeepEqual(origin.slots, want.slots) {
		t.Errorf("the origin changed with its heir: %+v", origin.state)
	}
}

// A new field that cannot be copied must not be shared silently.
func TestMemoryThatCannotBeCopiedPanics(t *testing.T) {
	type controller struct{ calls map[string]func() }
	defer func() {
		if got, want := fmt.Sprint(recover()), "a controller remembers a func(), of which no copy can be made"; got != want {
			t.Errorf("panic: %s, want %s", got, want)
		}
	}()
	inherit(&controller{}, &controller{calls: map[string]func(){}})
}
