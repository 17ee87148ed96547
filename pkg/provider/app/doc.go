// Package app is the process around a driver: with it, a provider's main is
//
//	func main() {
//		app.Main(app.Provider{Name: "acme", New: func() (provider.Driver, error) { return acme.New() }})
//	}
//
// The process serves the MachineClasses and Machines of its provider: it makes, follows, drains and removes
// instances. It runs beside machinist-manager, or alone. All that it needs beside a driver is here: flags, the
// connections to both clusters, leader election and its fence, health and metrics endpoints, signals and exit codes.
// It guards the driver: every call has a deadline, keeps to the rate that the user allows, is counted, and is not
// made at all by a process that may no longer be the leader; a driver that panics fails that one call.
package app
