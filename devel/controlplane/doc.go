// Package controlplane runs a real Kubernetes control plane on this machine:
// etcd and kube-apiserver, and if asked kube-controller-manager and
// kube-scheduler, as child processes that listen on loopback only. The tests
// run against it, and so does the demo.
//
// `make controlplane` downloads or builds the programs into a cache folder; see
// [Locate]. Each control plane has a folder of its own with its keys and
// certificates, data, logs and kubeconfigs:
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{WithControllerManager: true})
//	if err != nil {
//		return err
//	}
//	defer cp.Stop()
//	client, err := client.New(cp.Config(), client.Options{})
//
// [Start] returns when the control plane is usable, not merely started: the
// API server is ready, the default roles and namespaces exist, and pods can be
// created. The processes end with [ControlPlane.Stop], and on Linux also when
// this process dies in whatever way.
//
// The environment variables CONTROLPLANE_GOGC and CONTROLPLANE_GOMAXPROCS are the
// GOGC and GOMAXPROCS of its processes: where many control planes share few
// processors, they collect their garbage too often otherwise, and their threads
// look for work that there is none of.
//
// Parts of it can be stopped and started again with their data, on the same
// address, for tests of outages.
package controlplane
