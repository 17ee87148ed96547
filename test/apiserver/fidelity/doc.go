// Package fidelity compares the store with a real kube-apiserver. Each request of a random trace must have the same
// outcome on the store and on the real server. The package contains only tests.
package fidelity
