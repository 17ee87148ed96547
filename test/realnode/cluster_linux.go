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

// NodeName is the name of the real node. Pods that need real containers select it by the label kubernetes.io/hostname,
// because the cluster may also contain simulated nodes.
const NodeName = "real"

const startTimeout = 4 * time.Minute

const stopGrace = 3 * time.Second

// Options are the options of a Cluster.
type Options struct {
	// ControlPlane configures the control plane of the cluster. Start overwrites Dir, Address, WithControllerManager,
	// WithScheduler and Output.
	ControlPlane controlplane.Options

	// BootstrapToken is a token in the form ID.SECRET with which the kubelet joins. Start creates its Secret. The
	// kubelet's client and serving certificates must then be approved. With ApproveNodeClientCSRs, the control plane
	// approves the client certificate. Without a token, the kubelet starts with both certificates.
	BootstrapToken string

	// KubeletConfig contains additional fields of the kubelet's configuration in YAML.
	KubeletConfig string
	KubeletFlags  []string

	// Layouts are the folders of OCI layouts with images for pods. An image NAME:TAG is available from any registry:
	// ANY-REGISTRY/NAME:TAG.
	Layouts []string

	// Output receives a line for each step of Start, and for each process that ends unexpectedly.
	Output io.Writer
}

// Cluster is a running cluster with one real node.
type Cluster struct {
	*controlplane.ControlPlane
	*host

	kube    kubernetes.Interface
	kubelet *child.Process
}

// Start starts a cluster and returns when the node is ready for pods. A process can call Start only once, because the
// programs use fixed folders and ports. After a failure, no process is left running.
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
	// The container runtime and the control plane start at the same time.
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

	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("timeout after %v", startTimeout))
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
	c.logf("node %s is Ready after %s", NodeName, since(begun))
	if err := proxy.Await(ctx, httpReady("http://127.0.0.1:10256/healthz")); err != nil {
		return err
	}
	return dns.Await(ctx, httpReady("http://127.0.0.1:8181/ready"))
}

// Stop stops all processes. Containers and their shims end only with the test process (see Main).
func (c *Cluster) Stop() error {
	err := c.host.stop()
	if c.ControlPlane != nil {
		err = errors.Join(err, c.ControlPlane.Stop())
	}
	return err
}

// RestartKubelet restarts the kubelet. The containers continue to run.
func (c *Cluster) RestartKubelet() error {
	if err := c.kubelet.Stop(stopGrace); err != nil {
		return err
	}
	return c.kubelet.Start()
}

// Kube returns an administrator's client.
func (c *Cluster) Kube() kubernetes.Interface { return c.kube }

func since(begun time.Time) time.Duration {
	return time.Since(begun).Round(10 * time.Millisecond)
}
