// Package host simulates the machine inside an instance of the simulated cloud. It does what cloud-init and a kubelet
// do on a real machine, as seen from the network.
//
// A machine reads its user data and requests a node certificate from the cluster with the bootstrap token in the user
// data. Then it registers its Node, keeps its Lease and status up to date, and simulates the pods bound to it. It has
// no other information and no other credentials. Its console shows what fails.
//
// User data is a cloud-config, of which only write_files has an effect. The machine reads these files:
//
//   - /etc/kubernetes/bootstrap-kubeconfig: the API server, its CA and the bootstrap token, all inline. Without this
//     file, the machine never joins.
//   - /var/lib/kubelet/config.yaml: a KubeletConfiguration. registerWithTaints, nodeLeaseDurationSeconds,
//     nodeStatusUpdateFrequency, nodeStatusReportFrequency and serverTLSBootstrap have an effect.
//   - /etc/default/kubelet: KUBELET_EXTRA_ARGS, of which --node-labels has an effect, and KUBELET_VERSION.
//   - /etc/machine-version: the version of the kubelet. It takes precedence over KUBELET_VERSION.
//
// If the image contains an agent, the agent installs the kubelet version in the Node's annotation
// machinist.dev/update-requested. It writes the result to the annotation machinist.dev/update-result.
//
// Annotations that package simcloud defines control the simulation of pods.
//
// docs/simulated-cloud.md lists in what respects a machine behaves as a kubelet does, and in what respects it differs.
// A short time after the registration, the machine also sets those fields of the Node that a cloud controller manager
// would set.
//
// A machine needs a few goroutines and one connection. It only keeps the part of a pod that the simulation needs.
package host
