package simulation

import (
	"testing"

	"machinist.dev/machinist/test/machinestates"
)

// Unit tests take their states from this table, so it must contain every stored state.
func TestStoredStatesAreInTable(t *testing.T) {
	t.Parallel()
	states, err := Recording{Seeds: 1, Seed: 1, Workers: 2}.Run(Scenarios(), Scheme())
	if err != nil {
		t.Fatal(err)
	}
	for _, missing := range machinestates.RecordedStates().Missing(states) {
		t.Errorf("the table lacks %s: go run ./test/simulate states", missing)
	}
}
