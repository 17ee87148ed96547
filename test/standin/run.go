package standin

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const period = 500 * time.Millisecond

// Options configure a stand-in for an old system.
type Options struct {
	// Group is the API group of the old system.
	Group   string
	Cluster *rest.Config
	Cloud   Cloud
	// Namespace is the namespace of the objects. Namespace is empty for cluster-wide objects.
	Namespace string
	// Leases are the names of the old system's Leases in the namespace of the workload. LeaseDuration is how long
	// another process must wait after the last renewal.
	Leases        []string
	LeaseDuration time.Duration
	// Workload is the Deployment of the old controller. While the Deployment has no replicas, the stand-in does nothing.
	Workload types.NamespacedName
	Log      *slog.Logger
}

// Run runs a stand-in until ctx is done. Like a pod, the stand-in starts again after it has lost a Lease, or after
// its Deployment was scaled up.
func Run(ctx context.Context, o Options) error {
	g, known := groups[o.Group]
	if !known {
		return fmt.Errorf("unknown API group %q", o.Group)
	}
	kube, err := client.New(o.Cluster, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	c := &controller{Options: o, group: g, kube: kube, identity: "old_" + string(uuid.NewUUID())}
	if c.leases, err = coordinationv1.NewForConfig(o.Cluster); err != nil {
		return err
	}
	for ctx.Err() == nil {
		c.runPod(ctx)
		pause(ctx)
	}
	return nil
}

// runPod simulates one pod of the controller. The pod leads while it holds the Leases and the Deployment has replicas.
func (c *controller) runPod(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for !c.hasReplicas(ctx) {
		if !pause(ctx) {
			return
		}
	}
	go func() {
		for c.hasReplicas(ctx) && pause(ctx) {
			continue
		}
		cancel()
	}()
	c.acquire(ctx, cancel, c.Leases)
}

// hasReplicas reports whether the Deployment has replicas. If the Deployment cannot be read, the result is true,
// because the pod of a real controller would continue to run.
func (c *controller) hasReplicas(ctx context.Context) bool {
	workload := &appsv1.Deployment{}
	err := c.kube.Get(ctx, c.Workload, workload)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return *workload.Spec.Replicas > 0
}

func pause(ctx context.Context) bool {
	select {
	case <-time.After(period):
		return true
	case <-ctx.Done():
		return false
	}
}
