// Package integration tests health checks against a real API server.
package integration
