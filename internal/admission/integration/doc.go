// Package integration tests the webhooks and the maintenance of their certificate against a real API server.
package integration
