// Package integration tests health checks on a real API server.
package integration
