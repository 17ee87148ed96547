// Package ui serves the fleet view: web pages with the same information as the commands.
//
// A Source reads the cluster with the permissions of the viewer. After a change, the hub takes a snapshot and
// notifies the open pages, which request their content again. A page depends only on the snapshot and the URL, so
// every view can be bookmarked. The pages also work without JavaScript: the script only replaces the changed parts of
// a page.
//
// The server is for one user on one computer. The server listens on a loopback address, and access.go decides which
// requests are allowed. Nothing in this package changes the cluster.
package ui
