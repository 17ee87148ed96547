// Package integration tests package machinedeployment on a real kube-apiserver.
//
// The tests of fleet_test.go run the controllers of deployments and sets with a simulated provider, and check every
// event of a machine against maxSurge and maxUnavailable. The other tests call Reconcile with a client that reads
// from the API server. The results of these tests do not depend on timing. These tests can simulate stale caches and
// broken connections.
package integration
