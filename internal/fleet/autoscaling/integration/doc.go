// Package integration tests the annotations of node groups against the in-memory API server, which tracks the owners of
// fields.
package integration
