// Package fidelity compares the simulated kubelets of the simulated cloud (simcloud/host) with a real kubelet. Both
// join the same cluster with the same token and configuration. Each test applies the same actions to both nodes, and
// compares what the API server shows of them. The package contains only tests. Like test/realnode, it requires Linux
// and root.
package fidelity
