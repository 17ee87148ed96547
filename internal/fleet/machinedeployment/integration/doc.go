// Package integration tests package machinedeployment on a real kube-apiserver.
//
// The tests of fleet_test.go run the controllers of deployments and sets with a simulated provider, and check every
// event of a machine against the bounds. The other tests call Reconcile with a client that reads from the API server.
// Their results do not depend on timing, and they can inject faults of caches and connections.
package integration
