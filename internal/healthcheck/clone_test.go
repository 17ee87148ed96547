package healthcheck

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A field that is added to the memory and forgotten in Clone fails this test.
func TestACloneKeepsAllAndSharesNothing(t *testing.T) {
	r := New(Options{})
	r.state.checkState = checkState{
		machines: 3, began: minutes(1), melting: map[string]bool{"a": true}, recovered: map[string]time.Time{"b": minutes(2)},
		statusWritten: map[types.UID]time.Time{"c": minutes(3)}, restrictions: map[string]string{"default": "Meltdown"},
		vacancies: map[types.UID][]Vacancy{"set": {{UID: "m", Row: 1, At: minutes(4)}}},
		seen:      &Observations{before: map[key]time.Time{}, now: map[key]time.Time{Signal{UID: "n"}.key(): minutes(5)}},
	}
	f := r.Clone(Options{})
	if !reflect.DeepEqual(f.state.checkState, r.state.checkState) {
		t.Errorf("%+v, want %+v", f.state.checkState, r.state.checkState)
	}
	for i, v := 0, reflect.ValueOf(f.state.checkState); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("field %s is not tested", v.Type().Field(i).Name)
		}
	}
	f.state.vacancies["set"][0].Row = 9
	f.state.seen.now[key{}] = minutes(9)
	f.state.melting["z"], f.state.recovered["z"], f.state.statusWritten["z"], f.state.restrictions["z"] = true, minutes(9), minutes(9), "z"
	if len(r.state.melting)+len(r.state.recovered)+len(r.state.statusWritten)+len(r.state.restrictions) != 4 ||
		r.state.vacancies["set"][0].Row != 1 || len(r.state.seen.now) != 1 {
		t.Errorf("the clone is shared: %+v", r.state.checkState)
	}
}
