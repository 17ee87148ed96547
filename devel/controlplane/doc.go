// Package controlplane runs a real Kubernetes control plane on this machine: etcd and kube-apiserver, and optionally
// kube-controller-manager and kube-scheduler. All these programs are child processes that listen only on loopback.
// The tests and the demo use it.
//
// `make controlplane` downloads or builds the programs into a cache folder; see [Locate]. Each control plane has its
// own folder with its keys and certificates, data, logs and kubeconfigs:
//
//	cp, err := controlplane.Start(ctx, controlplane.Options{WithControllerManager: true})
//	if err != nil {
//		return err
//	}
//	defer cp.Stop()
//	client, err := client.New(cp.Config(), client.Options{})
//
// [Start] returns when the control plane can be used: the API server is ready, the default roles and namespaces exist,
// and pods can be created. [ControlPlane.Stop] ends the processes. On Linux they also end when this process dies.
//
// The environment variables CONTROLPLANE_GOGC and CONTROLPLANE_GOMAXPROCS set GOGC and GOMAXPROCS for the processes.
// Set them if many control planes share few processors, because the default values use too much processor time.
//
// Parts of a control plane can be stopped and started again with their data, at the same address, for tests of outages.
package controlplane
