// Package integration tests the annotations of node groups against a real API server, which knows who owns them.
package integration
