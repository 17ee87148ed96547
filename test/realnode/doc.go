// Package realnode runs a whole Kubernetes cluster of one real node on this machine: the control plane of
// devel/controlplane, and beside it containerd, kubelet, kube-proxy and CoreDNS, so that pods are real containers
// with images from a registry, service accounts, names and probes. hack/node/build.sh makes the programs ready.
//
// Everything runs in network, mount and process namespaces of its own: the test's binary starts itself again in them.
// So a package that uses it begins with
//
//	func TestMain(m *testing.M) { realnode.Main(m) }
//
// and needs Linux and root. When the test ends, in whatever way, the kernel ends all processes in the namespaces, the
// containers' included, and with them go the mounts and the network; Main removes what is left, one folder and the
// containers' cgroups. Nothing else on the machine changes.
package realnode
