// Package integration tests package machineset on a real kube-apiserver.
//
// Most tests call Reconcile with a client that reads from the API server. Their results do not depend on timing, and
// they can inject faults of caches and connections. The tests in manager_test.go run the controller as in production.
package integration
