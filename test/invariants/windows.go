package invariants

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"machinist.dev/machinist/api/v1beta1"
)

// InForce reports whether a budget applies during the whole period. A budget without windows always applies. InForce
// tests each minute of the period, so the durations of the windows must be whole minutes. It ignores daylight saving.
func InForce(spec *v1beta1.MachineDisruptionBudgetSpec, from, to time.Time) (bool, error) {
	if len(spec.Windows) == 0 {
		return true, nil
	}
	for at := from; ; at = at.Truncate(time.Minute).Add(time.Minute) {
		if at.After(to) {
			return true, nil
		}
		open := false
		for _, w := range spec.Windows {
			one, err := isOpen(w, at)
			if err != nil {
				return false, err
			}
			open = open || one
		}
		if open == (spec.Apply == v1beta1.ApplyOutside) {
			return false, nil
		}
	}
}

// isOpen reports whether a window has opened within its duration before a time.
func isOpen(w v1beta1.DisruptionWindow, at time.Time) (bool, error) {
	zone, err := time.LoadLocation(w.TimeZone)
	if err != nil {
		return false, err
	}
	for opened := at.Truncate(time.Minute); at.Sub(opened) < w.Duration.Duration; opened = opened.Add(-time.Minute) {
		if opens, err := matches(w.Schedule, opened.In(zone)); opens || err != nil {
			return opens, err
		}
	}
	return false, nil
}

// matches reports whether a local time matches the five fields of a schedule. If the schedule restricts both kinds of
// days, one of them is enough.
func matches(schedule string, at time.Time) (bool, error) {
	fields := strings.Fields(schedule)
	if len(fields) != 5 {
		return false, fmt.Errorf("schedule %q does not have five fields", schedule)
	}
	var in [5]bool
	for i, now := range []int{at.Minute(), at.Hour(), at.Day(), int(at.Month()), int(at.Weekday())} {
		for _, part := range strings.Split(fields[i], ",") {
			ok, err := includes(part, now, []int{0, 0, 1, 1, 0}[i])
			if err != nil {
				return false, fmt.Errorf("schedule %q: %w", schedule, err)
			}
			in[i] = in[i] || ok
		}
	}
	day := in[2] && in[4]
	if fields[2][0] != '*' && fields[4][0] != '*' {
		day = in[2] || in[4]
	}
	return in[0] && in[1] && in[3] && day, nil
}

// includes reports whether a part of a schedule's field, such as 5, 1-5, */10 or 1-30/10, includes a value. lowest is
// the smallest value of the field.
func includes(part string, value, lowest int) (bool, error) {
	span, every, stepped := strings.Cut(part, "/")
	low, high, step := lowest, 99, 1
	var err error
	if stepped {
		step, err = strconv.Atoi(every)
	}
	if span != "*" && err == nil {
		first, last, isRange := strings.Cut(span, "-")
		if low, err = strconv.Atoi(first); err == nil && isRange {
			high, err = strconv.Atoi(last)
		} else if !stepped {
			high = low
		}
	}
	return err == nil && value >= low && value <= high && (value-low)%step == 0, err
}
