// Package integration tests package machineset on a real kube-apiserver.
//
// Most tests call Reconcile themselves, on a client that always reads the API server: then nothing depends on time, and
// a test can put in whatever a cache or a connection may do. Those in manager_test.go run the controller as it runs in
// production.
package integration
