// Package integration tests package machineset on a real kube-apiserver.
//
// Most tests call Reconcile directly, with a client that always reads from the API server. Therefore no result
// depends on timing, and a test can inject faults of caches and connections. The tests in manager_test.go run the
// controller in the same way as in production.
package integration
