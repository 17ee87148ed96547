// Package ui serves the fleet view: web pages that show the same information as the commands, and that are updated when
// the fleet changes.
//
// A Source reads the cluster with the permissions of the viewer. When objects change, the hub takes a snapshot of the
// objects and notifies the open pages. The pages then request their content again. The content of a page depends only
// on the snapshot and the URL, so every view can be bookmarked. Pages are complete HTML and work without the script.
// The script only replaces the parts that have changed.
//
// The server is for one user on one computer. It listens on a loopback address, and access.go decides which requests
// are allowed. Nothing in this package changes the cluster, because a Source can only read.
package ui
