package healthcheck

import (
	"reflect"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// A field that is added to the memory and forgotten in Fork fails this test.
func TestAForkRemembersAllAndSharesNothing(t *testing.T) {
	r := New(Options{})
	r.memory.recollection = recollection{
		machines: 3, began: minutes(1), melting: map[string]bool{"a": true}, recovered: map[string]time.Time{"b": minutes(2)},
		statusWritten: map[types.UID]time.Time{"c": minutes(3)}, refusals: map[string]string{"default": "Meltdown"},
		vacancies: map[types.UID][]Vacancy{"set": {{UID: "m", Row: 1, At: minutes(4)}}},
		seen:      &Observations{before: map[key]time.Time{}, now: map[key]time.Time{Signal{UID: "n"}.key(): minutes(5)}},
	}
	f := r.Fork(Options{})
	if !reflect.DeepEqual(f.memory.recollection, r.memory.recollection) {
		t.Errorf("%+v, want %+v", f.memory.recollection, r.memory.recollection)
	}
	for i, v := 0, reflect.ValueOf(f.memory.recollection); i < v.NumField(); i++ {
		if v.Field(i).IsZero() {
			t.Errorf("field %s is not tested", v.Type().Field(i).Name)
		}
	}
	f.memory.vacancies["set"][0].Row = 9
	f.memory.seen.now[key{}] = minutes(9)
	f.memory.melting["z"], f.memory.recovered["z"], f.memory.statusWritten["z"], f.memory.refusals["z"] = true, minutes(9), minutes(9), "z"
	if len(r.memory.melting)+len(r.memory.recovered)+len(r.memory.statusWritten)+len(r.memory.refusals) != 4 || r.memory.vacancies["set"][0].Row != 1 || len(r.memory.seen.now) != 1 {
		t.Errorf("the fork is shared: %+v", r.memory.recollection)
	}
}
