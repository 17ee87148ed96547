// Package integration tests package machinedeployment on a real kube-apiserver.
//
// The tests of fleet_test.go run the controllers of deployments and sets as they run in production, with a simulated
// provider, and check every event of every machine against the bounds. The other tests call Reconcile directly, with a
// client that always reads from the API server. Therefore no result depends on timing, and a test can inject faults
// of caches and connections.
package integration
