// Package app is the process around a driver: with it, a provider's main is
//
//	func main() {
//		app.Main(app.Provider{Name: "acme", New: func() (provider.Driver, error) { return acme.New() }})
//	}
//
// The process serves the MachineClasses and Machines of its provider: it makes, follows, drains and removes instances.
// It runs beside machinist-manager, or alone.
package app
