// Package window computes when the windows of a MachineDisruptionBudget are open.
//
// A window opens by the local time in its time zone: whenever the local time equals a time of the schedule, or skips
// one because daylight saving time begins. It stays open for its duration in elapsed time. A Set is open while at least
// one of its windows is open, so windows that overlap or adjoin count as one.
package window
