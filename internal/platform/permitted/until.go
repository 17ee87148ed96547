// Package permitted reads permissions that an administrator gives for a limited time. A permission that ends
// automatically cannot be forgotten.
package permitted

import (
	"fmt"
	"time"
)

// ExampleTime is an example of such a time. It is constant, so that messages that contain it do not change.
const ExampleTime = "2026-01-31T15:00:00Z"

// Until returns why a permission does not count now, or "" if it does. value is the end of the permission (RFC 3339),
// which may be at most the duration most ahead.
func Until(value string, now time.Time, most time.Duration) (problem string) {
	until, err := time.Parse(time.RFC3339, value)
	switch {
	case err != nil:
		return fmt.Sprintf("its value %.40q is not a time such as %s", value, ExampleTime)
	case until.Sub(now) > most:
		return fmt.Sprintf("its value %s is more than %s ahead", value, most)
	case !until.After(now):
		return fmt.Sprintf("its value %s is in the past", value)
	}
	return ""
}

// BeginsIn returns after what time a permission will count whose end is still too far ahead. It returns zero if the
// permission counts now, or if its end is in the past or not a time.
func BeginsIn(value string, now time.Time, most time.Duration) time.Duration {
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0
	}
	return max(until.Sub(now)-most, 0)
}
