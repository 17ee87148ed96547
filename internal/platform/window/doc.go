// Package window computes when the windows of a MachineDisruptionBudget are open.
//
// A window opens when the local time in its time zone reaches a time of the schedule. If the beginning of daylight
// saving time skips this time, the window opens after the skipped hour. The window stays open for its duration in
// elapsed time. A Set is open while at least one of its windows is open.
package window
