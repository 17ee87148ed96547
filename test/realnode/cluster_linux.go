package realnode

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"k8s.io/client-go/kubernetes"

	"machinist.dev/machinist/devel/child"
	"machinist.dev/machinist/devel/controlplane"
)

// NodeName is the name of the real node. Pods that need to be real containers select it by the label
// kubernetes.io/hostname: nodes of the simulated cloud are in the cluster too.
const NodeName = "real"

// startTimeout bounds the start of the node, or of a cluster by kubeadm.
const startTimeout = 4 * time.Minute

// stopGrace is how long a process may take to end by itself.
const stopGrace = 3 * time.Second

// Options say what the cluster consists of.
type Options struct {
	// ControlPlane are the options of the control plane. Dir, Address,
	// WithControllerManager, WithScheduler and Output are set by Start.
	ControlPlane controlplane.Options

	// BootstrapToken, if set, is one as ID.SECRET by which the kubelet joins: Start makes its Secret, and the kubelet
	// asks for a certificate with it, and for another one to serve with. Somebody has to approve them, such as the
	// control plane with ApproveNodeClientCSRs the former. Without a token the kubelet has both when it starts.
	BootstrapToken string

	// KubeletConfig has more fields of the kubelet's configuration, in YAML, and KubeletFlags more of its flags.
	KubeletConfig string
	KubeletFlags  []string

	// Layouts are the OCI layouts with the images that pods can use. An image
	// NAME:TAG in a layout is pulled as ANY-REGISTRY/NAME:TAG.
	Layouts []string

	// Output receives a line per step of Start, and one if a process ends
	// that nobody stopped.
	Output io.Writer
}

// Cluster is a running cluster with one real node.
type Cluster struct {
	*controlplane.ControlPlane
	*host

	kube    kubernetes.Interface
	kubelet *child.Process
}

// Start runs a cluster and returns when the node is ready for pods. It can run once in a process: the node's programs
// use folders and ports of their own choice. When it fails, nothing is left running.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	begun := time.Now()
	h, err := newHost(o.Output)
	if err != nil {
		return nil, fmt.Errorf("start real node: %w", err)
	}
	c := &Cluster{host: h}
	if err := c.start(ctx, o); err != nil {
		return nil, errors.Join(fmt.Errorf("start real node: %w", err), c.Stop())
	}
	c.logf("node %s is ready for pods after %s", NodeName, since(begun))
	return c, nil
}

func (c *Cluster) start(ctx context.Context, o Options) error {
	begun := time.Now()
	if err := prepareNetwork(); err != nil {
		return fmt.Errorf("prepare network: %w", err)
	}
	programs := c.programs
	// The runtime starts while the control plane does.
	awaitRuntime, err := c.startRuntime(o.Layouts)
	if err != nil {
		return err
	}

	options := o.ControlPlane
	options.Dir = filepath.Join(c.dir, "controlplane")
	options.Address = nodeAddress
	options.WithControllerManager, options.WithScheduler = true, true
	options.Output = o.Output
	if c.ControlPlane, err = controlplane.Start(ctx, options); err != nil {
		return err
	}
	if c.kube, err = kubernetes.NewForConfig(c.Config()); err != nil {
		return err
	}

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not within %v", startTimeout))
	defer cancel()
	if err := awaitRuntime(ctx); err != nil {
		return err
	}
	c.logf("registry and containerd are ready after %s", since(begun))
	kubelet, err := c.prepareKubelet(ctx, programs.kubelet, o)
	if err != nil {
		return err
	}
	c.kubelet = kubelet
	proxy, err := c.prepareProxy(programs.proxy)
	if err != nil {
		return err
	}
	dns, err := c.prepareDNS(programs.dns)
	if err != nil {
		return err
	}
	for _, p := range []*child.Process{kubelet, proxy, dns} {
		if err := c.run(p); err != nil {
			return err
		}
	}
	if err := kubelet.Await(ctx, c.nodeReady); err != nil {
		return err
	}
	c.logf("kubelet's node is Ready after %s", since(begun))
	if err := proxy.Await(ctx, answers("http://127.0.0.1:10256/healthz")); err != nil {
		return err
	}
	return dns.Await(ctx, answers("http://127.0.0.1:8181/ready"))
}

// Stop ends all processes. Containers and their shims end with the process of the test: see Main.
func (c *Cluster) Stop() error {
	err := c.host.stop()
	if c.ControlPlane != nil {
		err = errors.Join(err, c.ControlPlane.Stop())
	}
	return err
}

// RestartKubelet ends the kubelet and starts it again. The containers run on.
func (c *Cluster) RestartKubelet() error {
	if err := c.kubelet.Stop(stopGrace); err != nil {
		return err
	}
	return c.kubelet.Start()
}

// Kube returns a client as administrator.
func (c *Cluster) Kube() kubernetes.Interface { return c.kube }

func since(begun time.Time) time.Duration {
	return time.Since(begun).Round(10 * time.Millisecond)
}
