// Package ui tests the fleet view (machinist ui) in a real browser, with a running Machinist and the simulated cloud.
//
// The package is a separate module, so that Machinist does not depend on libraries that control browsers.
package ui
