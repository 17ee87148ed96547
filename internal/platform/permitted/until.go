// Package permitted reads what a person permits for a time: a permission that ends by itself cannot be forgotten.
package permitted

import (
	"fmt"
	"time"
)

// ExampleTime is how such a time is written. It is always the same, so that a message does not change by itself.
const ExampleTime = "2026-01-31T15:00:00Z"

// Until reports why a permission does not count now, empty if it does. value is its end (RFC 3339), at most so far
// ahead.
func Until(value string, now time.Time, most time.Duration) (problem string) {
	until, err := time.Parse(time.RFC3339, value)
	switch {
	case err != nil:
		return fmt.Sprintf("its value %.40q is no time such as %s", value, ExampleTime)
	case until.Sub(now) > most:
		return fmt.Sprintf("its value %s is more than %s ahead", value, most)
	case !until.After(now):
		return fmt.Sprintf("its value %s is past", value)
	}
	return ""
}

// BeginsIn returns how long a permission does not count yet because its end is too far ahead, zero if it counts, is
// past or is not a time.
func BeginsIn(value string, now time.Time, most time.Duration) time.Duration {
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0
	}
	return max(until.Sub(now)-most, 0)
}
