// Package window computes when the windows of a MachineDisruptionBudget are open.
//
// A window opens by the clock on a wall in its time zone: whenever that clock reads a time of the schedule, or jumps
// over one because daylight saving begins. It stays open for its duration of elapsed time. A Set is open while at
// least one of its windows is, so windows that overlap or touch are one.
package window
