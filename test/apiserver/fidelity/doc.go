// Package fidelity compares the store with a real kube-apiserver: random traces of requests must have the same
// outcome at both, one by one. It holds tests only.
package fidelity
