// Package ui serves the fleet view: the views of the commands as pages that follow the fleet.
//
// A Source reads the cluster with the rights of the viewer. The hub turns what it has read into a snapshot whenever
// that changes, and tells the open pages, which ask for their content again. A page is a function of a snapshot and of
// the URL, so that every view has an address, and it is complete HTML: the script only replaces what has changed.
//
// The server is for one person on one machine. It listens on loopback, and access.go says who may ask it. Nothing here
// changes anything in the cluster; the Source sees to that.
package ui
