// Package ui drives the fleet view (machinist ui) in a real browser, against a running Machinist with the simulated
// cloud. It is a module of its own: what drives browsers is no requirement of Machinist's.
package ui
