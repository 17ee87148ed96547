// Package realnode runs a Kubernetes cluster with one real node on this host. The cluster consists of the control plane
// of devel/controlplane, containerd, a kubelet, kube-proxy and CoreDNS. Pods are real containers with images from a
// registry, service accounts, DNS names and probes. hack/node/build.sh prepares the programs.
//
// Everything runs in separate network, mount and process namespaces, in which the test binary starts itself again. A
// package that uses realnode needs Linux, root and this function:
//
//	func TestMain(m *testing.M) { realnode.Main(m) }
//
// When the test ends or is killed, the kernel kills all processes in the namespaces, including the containers, and
// removes the mounts and the network. Main removes one folder and the cgroups of the containers. Nothing else changes
// on the host.
package realnode
