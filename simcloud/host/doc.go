// Package host simulates the machine inside an instance of the simulated cloud. From the network, it looks like a real
// machine with cloud-init and a kubelet.
//
// A machine reads its user data and requests a node certificate with the bootstrap token. Then the simulated kubelet
// registers the Node, keeps the Lease and the status of the Node up to date, and simulates the pods that are bound to
// the Node. The user data is its only source of information and credentials. The console of the machine shows errors.
//
// User data is a cloud-config. Only write_files has an effect. The machine reads these files:
//
//   - /etc/kubernetes/bootstrap-kubeconfig: the API server, its CA and the bootstrap token, all inline. Without this
//     file, the machine never joins.
//   - /var/lib/kubelet/config.yaml: a KubeletConfiguration. registerWithTaints, nodeLeaseDurationSeconds,
//     nodeStatusUpdateFrequency, nodeStatusReportFrequency and serverTLSBootstrap have an effect.
//   - /etc/default/kubelet: KUBELET_EXTRA_ARGS, of which --node-labels has an effect, and KUBELET_VERSION.
//   - /etc/machine-version: the version of the kubelet. It takes precedence over KUBELET_VERSION.
//
// If the image contains an agent, the agent installs the kubelet version in the Node's annotation
// machinist.dev/update-requested. The agent writes the result to the annotation machinist.dev/update-result.
//
// Annotations that package simcloud defines control the simulation of pods.
//
// docs/dev/simulated-cloud.md lists the differences from a real kubelet. Shortly after the registration, the machine
// also sets the fields that a cloud controller manager would set.
//
// A machine needs a few goroutines and one connection. The machine stores only those fields of a pod that the
// simulation needs.
package host
