// Package window computes when the windows of a MachineDisruptionBudget are open.
//
// A window uses the local time in its time zone. It opens whenever the local time reaches a time of the schedule. If
// the beginning of daylight saving time skips a time of the schedule, the window opens after the skipped hour. It stays
// open for its duration in elapsed time. A Set is open while at least one of its windows is open. Therefore windows
// that overlap or adjoin count as one window.
package window
