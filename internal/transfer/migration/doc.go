// Package migration moves the fleets of other systems to Machinist. A Migration names the fleet, and the last stage to
// which the migration may advance. The phases of the migration begin with reading the old objects and end with deleting
// them. The migrator stores no state of single objects. Each pass reads the current objects at the API server and the
// current instances in the cloud, and performs the next step of the phase. The migrator can be stopped at any time.
package migration
