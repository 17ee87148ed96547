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

	"machinist.dev/machinist/simcloud"
)

// period is the time from one pass, or try to begin, to the next.
const period = 500 * time.Millisecond

// Options are what a stand-in works with.
type Options struct {
	// Group is the API group of the old system.
	Group   string
	Cluster *rest.Config
	Cloud   *simcloud.Client
	// Namespace has the objects of the group; empty where they have none.
	Namespace string
	// UserData starts the instances.
	UserData []byte
	// Leases are those of the old system, in the namespace of the workload, and LeaseDuration is how long another process
	// waits for a leader that is gone.
	Leases        []string
	LeaseDuration time.Duration
	// Workload is the Deployment in whose pod the old controller runs. The stand-in does nothing while it has no
	// replicas.
	Workload types.NamespacedName
	Log      *slog.Logger
}

// Run serves until ctx is done. Like a pod it begins again when the Lease is lost or its Deployment is scaled up.
func Run(ctx context.Context, o Options) error {
	g, known := groups[o.Group]
	if !known {
		return fmt.Errorf("no system with the group %q is known", o.Group)
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
		c.life(ctx)
		pause(ctx)
	}
	return nil
}

// life is that of one pod: it leads while it has the Leases and the Deployment has replicas.
func (c *controller) life(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for !c.wanted(ctx) {
		if !pause(ctx) {
			return
		}
	}
	go func() {
		for c.wanted(ctx) && pause(ctx) {
			continue
		}
		cancel()
	}()
	c.acquire(ctx, cancel, c.Leases)
}

// wanted reports whether there is the Deployment, with replicas. While it cannot be read, its pod runs on.
func (c *controller) wanted(ctx context.Context) bool {
	workload := &appsv1.Deployment{}
	err := c.kube.Get(ctx, c.Workload, workload)
	if err != nil {
		return !apierrors.IsNotFound(err)
	}
	return *workload.Spec.Replicas > 0
}

// pause waits for the next pass; false: there is no next one.
func pause(ctx context.Context) bool {
	select {
	case <-time.After(period):
		return true
	case <-ctx.Done():
		return false
	}
}
