// Package migration moves the fleets of other systems to Machinist. A Migration names the fleet and the last stage to
// reach.
//
// The migrator does not record which objects it has already processed. Each pass reads the current objects and
// instances, and performs the next step of the phase. The migrator can be stopped at any time.
package migration
