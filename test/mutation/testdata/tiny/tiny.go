// Package tiny contains a statement for each kind of mutant.
package tiny

import (
	"errors"
	"fmt"
	"time"
)

// Patience is the default limit.
const Patience = 5 * time.Second

var errLate = errors.New("late")

// Check returns an error if a wait is longer than its limit. The limit 0 means Patience.
func Check(waited, limit time.Duration) error {
	if limit == 0 {
		limit = Patience
	}
	if waited > limit {
		return fmt.Errorf("%w by %s", errLate, waited-limit)
	}
	return nil
}

// Between tells whether n is at least low and less than high.
func Between(n, low, high int) bool { return n >= low && n < high }

// Higher returns the higher number. At equality, the condition does not matter.
func Higher(a, b int) int {
	if a < b {
		a = b
	}
	return a
}

// Untested is not called by any test.
func Untested(n int) int { return n + 1 }
