// Package integration tests package machineset on a real kube-apiserver.
//
// Most tests call Reconcile with a client that reads from the API server. The results of these tests do not depend on
// timing, and the tests can inject faults of caches and connections. The tests in manager_test.go run the controller
// as in production.
package integration
