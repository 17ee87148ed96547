// Package integration tests the annotations of node groups against the in-memory API server, which knows who owns them.
package integration
