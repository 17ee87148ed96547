// Package integration tests the controller of Providers against a real API server, with a small chart of its own.
package integration
