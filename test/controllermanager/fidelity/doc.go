// Package fidelity compares the background controllers of the store and of test/controllermanager with a real
// kube-controller-manager and kube-scheduler. Both clusters run the same scenarios and must reach the same state after
// each step. The package contains only tests.
package fidelity
