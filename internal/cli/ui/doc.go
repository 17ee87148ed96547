// Package ui serves the fleet view: the views of the commands as web pages that follow the fleet.
//
// A Source reads the cluster with the rights of the viewer. Whenever the objects change, the hub takes a snapshot of
// them and notifies the open pages, which then request their content again. A page depends only on a snapshot and the
// URL, so every view has an address. It is complete HTML: the script only replaces the parts that have changed.
//
// The server is for one user on one machine. It listens on a loopback address, and access.go decides which requests it
// answers. Nothing in this package changes the cluster, because a Source can only read.
package ui
