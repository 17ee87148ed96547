package fence

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock records the renewals of a Lease in a Fence. Only one elector may use a Lock. The elector must not release the
// Lease. Call Release instead. The methods of Lock must not be called concurrently.
type Lock struct {
	resourcelock.Interface
	fence *Fence
}

// Guard wraps the lock of the Lease on which the fence depends.
func (f *Fence) Guard(lock resourcelock.Interface) *Lock {
	return &Lock{Interface: lock, fence: f}
}

// Get reads the Lease. If this process leads and the Lease has another holder, the Lease is lost.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		l.fence.lose("the Lease was deleted")
	case err == nil && record.HolderIdentity != l.Identity():
		l.fence.lose(fmt.Sprintf("the Lease is held by %q", record.HolderIdentity))
	}
	return record, raw, err
}

// Create writes a new Lease object with this process as the holder.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Create)
}

// Update acquires or renews the Lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Update)
}

// renew sends a request that makes this process the holder of the Lease. If the fence is closed, renew sends no
// request, because a renewal would delay the next leader.
//
// renew sets a new renew time in each request. The elector would repeat a failed request with the same renew time. If
// the API server had applied the failed request, the repeated request would not change the Lease. Other candidates
// would then count the lease duration from the failed request, which is too early.
func (l *Lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		return fmt.Errorf("write Lease %s: the holder must be %q, not %q", l.Describe(), l.Identity(),
			record.HolderIdentity)
	}
	if err := l.fence.closedReason(); err != nil {
		return err
	}
	sent := l.fence.clock.Now()
	record.RenewTime = metav1.NewTime(sent)
	if err := send(ctx, record); err != nil {
		return err
	}
	l.fence.noteRenewal(sent)
	return nil
}

// Release gives up the Lease, so that another process need not wait until it expires. The fence closes before the
// request is sent. Call Release after all guarded work and the elector have ended. Release does nothing if the Lease
// was lost or another process holds it.
func (l *Lock) Release(ctx context.Context) error {
	l.fence.release()
	select {
	case <-l.fence.LeaseLost():
		return nil
	default:
	}
	for {
		record, _, err := l.Interface.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("release Lease %s: %w", l.Describe(), err)
		}
		if record.HolderIdentity != l.Identity() {
			return nil
		}
		now := metav1.NewTime(l.fence.clock.Now())
		err = l.Interface.Update(ctx, resourcelock.LeaderElectionRecord{
			LeaseDurationSeconds: releasedSeconds,
			AcquireTime:          now,
			RenewTime:            now,
			LeaderTransitions:    record.LeaderTransitions,
		})
		// The API server may have applied a cancelled renewal between the read and the update.
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("release Lease %s: %w", l.Describe(), err)
		}
		return nil
	}
}
