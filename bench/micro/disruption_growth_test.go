//go:build !race

package micro

import (
	"testing"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/fleet/disruption"
)

// Rule: no-budget-no-cost.
func TestPassWithoutBudgetsAllocatesNoMore(t *testing.T) {
	noLedger := func(cached, clock.PassiveClock) *disruption.Ledger { return nil }
	for i, k := range kindsWithLedger(ledgerOf) {
		plainKind := kindsWithLedger(noLedger)[i]
		const n = 10 * setSize
		withLedger, withoutLedger := bytesPerRun(k.steadyPass(t, n, setSize)), bytesPerRun(plainKind.steadyPass(t, n, setSize))
		t.Logf("%s: %d bytes with a ledger, %d bytes without", k.name, withLedger, withoutLedger)
		if withLedger > withoutLedger {
			t.Errorf("%s: got %d bytes with a ledger, want at most the %d without", k.name, withLedger, withoutLedger)
		}
	}
}
