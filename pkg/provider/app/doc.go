// Package app contains the process around a driver. The main function of a provider calls the package like this:
//
//	func main() {
//		app.Main(app.Provider{Name: "acme", New: func() (provider.Driver, error) { return acme.New() }})
//	}
//
// The process serves the MachineClasses and Machines of its provider: it creates, tracks, drains and deletes
// instances. The process runs alone, or together with machinist-manager.
//
// The package provides everything except the driver: flags, clients of both clusters, leader election, health and
// metrics endpoints, signals and exit codes. The package also makes every call of the driver safe. Every call has a
// deadline, is counted, and respects the rate limit. A process that may have lost its leadership makes no calls. If the
// driver panics, only that call fails.
package app
