// Package integration tests the webhooks, and the keeping of their certificate, with a real API server.
package integration
