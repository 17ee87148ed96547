// Package migration moves the fleets of other systems to Machinist. A Migration names the fleet and the last stage to
// reach.
//
// The migrator stores no state of single objects. Each pass reads the current objects and instances, and performs the
// next step of the phase. The migrator can be stopped at any time.
package migration
