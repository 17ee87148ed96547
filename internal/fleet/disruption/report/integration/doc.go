// Package integration tests the status of disruption budgets against a real API server, which applies the schema and
// tracks field owners.
package integration
