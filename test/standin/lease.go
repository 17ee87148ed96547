package standin

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// acquire acquires all Leases and leads while the controller holds all of these Leases. When the controller loses a
// Lease, acquire calls the function end, because the real process would exit.
func (c *controller) acquire(ctx context.Context, end func(), leases []string) {
	if len(leases) == 0 {
		c.Log.Info("leads", "identity", c.identity)
		c.lead(ctx)
		return
	}
	lock := &resourcelock.LeaseLock{LeaseMeta: metav1.ObjectMeta{Namespace: c.Workload.Namespace, Name: leases[0]},
		Client: c.leases, LockConfig: resourcelock.ResourceLockConfig{Identity: c.identity}}
	leaderelection.RunOrDie(ctx, leaderelection.LeaderElectionConfig{
		Lock: oldLock{lock, c.LeaseDuration}, LeaseDuration: c.LeaseDuration, RenewDeadline: c.LeaseDuration * 2 / 3,
		RetryPeriod: c.LeaseDuration / 6,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { c.acquire(ctx, end, leases[1:]) },
			OnStoppedLeading: func() {
				c.Log.Info("does not lead", "lease", leases[0])
				end()
			},
		},
	})
}

// oldLock reads a Lease like old versions of client-go: such a version ignores the duration in the Lease and uses the
// reader's own duration.
type oldLock struct {
	resourcelock.Interface
	duration time.Duration
}

func (l oldLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if record != nil {
		record.LeaseDurationSeconds = int(l.duration.Seconds())
	}
	return record, raw, err
}
