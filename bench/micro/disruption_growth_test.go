//go:build !race

package micro

import (
	"testing"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/fleet/disruption"
)

// A pass over a fleet that is settled allocates no more than one that knows of no budgets.
//
// Rule: no-budget-no-cost.
func TestAPassWithoutABudgetCostsNoMore(t *testing.T) {
	none := func(cached, clock.PassiveClock) *disruption.Ledger { return nil }
	for i, k := range asking(ledgerOf) {
		without := asking(none)[i]
		const n = 10 * setSize
		asks, nobody := bytesPerRun(k.settled(t, n, setSize)), bytesPerRun(without.settled(t, n, setSize))
		t.Logf("%s: %d bytes with a ledger, %d without", k.name, asks, nobody)
		if asks > nobody {
			t.Errorf("%s: %d bytes with a ledger, %d without", k.name, asks, nobody)
		}
	}
}
