// Package permitted checks temporary permissions, which an administrator grants by an annotation with an end time.
package permitted

import (
	"fmt"
	"time"
)

// ExampleTime is an example of an end time. The example is constant, so that messages do not change from one check to
// the next.
const ExampleTime = "2026-01-31T15:00:00Z"

// Check checks the permission in an annotation. The value of the annotation is the end time of the permission in RFC
// 3339. The function returns "" if the permission is valid now. Otherwise, the function returns the problem: the
// value is not a time, the permission has ended, or the permission lasts longer than the maximum.
func Check(value string, now time.Time, most time.Duration) (problem string) {
	until, err := time.Parse(time.RFC3339, value)
	switch {
	case err != nil:
		return fmt.Sprintf("its value %.40q is not a time such as %s", value, ExampleTime)
	case until.Sub(now) > most:
		return fmt.Sprintf("its value %s is more than %s in the future", value, most)
	case !until.After(now):
		return fmt.Sprintf("its value %s is in the past", value)
	}
	return ""
}

// BeginsIn returns the duration until a permission becomes valid. A permission becomes valid when its end is no further
// away than the maximum duration. BeginsIn returns zero if the permission is valid now, has ended, or is not a time.
func BeginsIn(value string, now time.Time, most time.Duration) time.Duration {
	until, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return 0
	}
	return max(until.Sub(now)-most, 0)
}
