// Package permitted reads permissions that an administrator gives for a limited time. Such a permission ends
// without any action, so an administrator need not remove it.
package permitted

import (
	"fmt"
	"time"
)

// ExampleTime is an example of such a time. It is constant, so that messages that contain it do not change.
const ExampleTime = "2026-01-31T15:00:00Z"

// Until returns the reason why a permission is not valid now, or "" if it is valid. The parameter value is the time at
// which the permission ends (RFC 3339). The parameter most limits how far this time may be in the future.
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

// BeginsIn returns the duration until a permission becomes valid. A permission is not valid yet if its end is too far
// in the future. BeginsIn returns zero if the permission is valid now, if its end is in the past, or if its end is not
// a time.
func BeginsIn(value string, now time.Time, most time.Duration) time.Duration {
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0
	}
	return max(until.Sub(now)-most, 0)
}
