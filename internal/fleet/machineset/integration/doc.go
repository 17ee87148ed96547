// Package integration tests package machineset on a real kube-apiserver.
//
// Most tests call Reconcile themselves, on a client that always reads the API server: then nothing depends on time, and
// a test can inject faults of caches and connections. The tests in manager_test.go run the controller as in production.
package integration
