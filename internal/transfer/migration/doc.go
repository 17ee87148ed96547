// Package migration takes over the fleets of other systems. A Migration names the fleet and the stage to reach. Its
// phases lead from reading the old objects to removing them. The migrator stores no state of single objects: each pass
// reads what exists at the API server and in the cloud, and does what the phase requires next. It can be stopped at any
// time.
package migration
