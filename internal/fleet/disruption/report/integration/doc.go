// Package integration tests the report of disruption budgets against a real API server, which applies the schema of
// their status and tracks the owners of fields.
package integration
