// Package fidelity compares the store's background controllers and those of test/controllermanager with a real
// kube-controller-manager and kube-scheduler. A story is acted out at both, sentence by sentence; after each, both
// clusters must come to show the same. It holds tests only.
package fidelity
