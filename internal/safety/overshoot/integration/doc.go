// Package integration tests the overshoot freeze against a real API server.
package integration
