// Package fidelity compares the simulated kubelets of the simulated cloud (simcloud/host) with a real kubelet. Both
// kubelets join the same cluster with the same token and configuration. Each test performs the same actions on both
// nodes, and compares the nodes and their pods in the API server. The package contains only tests. Like
// test/realnode, it requires Linux and root.
package fidelity
