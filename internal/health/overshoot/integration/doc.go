// Package integration tests the overshoot freeze against the in-memory API server.
package integration
