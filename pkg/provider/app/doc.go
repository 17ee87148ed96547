// Package app contains the process around a driver. With it, the main function of a provider is:
//
//	func main() {
//		app.Main(app.Provider{Name: "acme", New: func() (provider.Driver, error) { return acme.New() }})
//	}
//
// The process serves the MachineClasses and Machines of its provider: it creates, tracks, drains and deletes instances.
// It runs alone, or together with machinist-manager.
//
// The package provides everything that the process needs in addition to the driver: flags, the connections to both
// clusters, leader election and its fence, health and metrics endpoints, signals and exit codes. It also guards the
// driver. Every call has a deadline, is counted, and respects the configured rate limit. A process that may have lost
// its leadership makes no calls. If the driver panics, only that call fails.
package app
