// Package fidelity compares the kubelets that the simulated cloud plays (simcloud/host) with a real one. Both join one
// cluster by the same token and configuration, the same is done to both, and then both must have shown the same. It
// holds tests only, and needs what test/realnode needs: Linux and root.
package fidelity
