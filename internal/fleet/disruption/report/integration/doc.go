// Package integration tests the report of disruption budgets against a real API server, which knows the schema of their
// status and who changed it.
package integration
