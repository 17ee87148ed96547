// Package host is the machine inside a simulated instance: what a cloud-init
// and a kubelet do on a real one, seen from the network.
//
// A machine reads its user data, asks the cluster named there for a node
// certificate with the bootstrap token found there, registers its Node, keeps
// its Lease and status fresh, and plays the pods bound to it. It has no
// knowledge and no credentials but those. What it does wrong or cannot do
// shows on its console.
//
// User data is a cloud-config, of which write_files is carried out. The machine
// reads these of its files:
//
//   - /etc/kubernetes/bootstrap-kubeconfig: the API server, its CA and the
//     bootstrap token, all inline. Without it the machine never joins.
//   - /var/lib/kubelet/config.yaml: a KubeletConfiguration, of which
//     registerWithTaints, nodeLeaseDurationSeconds, nodeStatusUpdateFrequency
//     and nodeStatusReportFrequency count.
//   - /etc/default/kubelet: KUBELET_EXTRA_ARGS, of which --node-labels counts,
//     and KUBELET_VERSION.
//   - /etc/machine-version: the kubelet's version; it wins over
//     KUBELET_VERSION.
//
// Where the image has an agent, it installs the kubelet that the annotation
// machinist.dev/update-requested of the Node asks for, and answers by
// machinist.dev/update-result.
//
// Pods are directed by the annotations that package simcloud names.
//
// What a machine does as a kubelet does, and what it leaves out, is listed in
// docs/simulated-cloud.md. What a cloud controller manager writes on Nodes is
// written here as well, a moment after the registration.
//
// A machine costs a few goroutines and one connection, and keeps no more of a
// pod than it needs to play it.
package host
