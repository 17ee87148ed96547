package fence

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Lock is the lock of a lease that reports to a Fence. It is for one elector, which must leave the release to
// Release: the methods are not to be called concurrently.
type Lock struct {
	resourcelock.Interface
	fence *Fence
}

// Guard wraps the lock of the lease that the fence stands for.
func (f *Fence) Guard(lock resourcelock.Interface) *Lock {
	return &Lock{Interface: lock, fence: f}
}

// Get reads the lease. A leader that does not find itself in it has lost it.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	switch {
	case apierrors.IsNotFound(err):
		l.fence.lose("the lease was deleted")
	case err == nil && record.HolderIdentity != l.Identity():
		l.fence.lose(fmt.Sprintf("the lease is held by %q", record.HolderIdentity))
	}
	return record, raw, err
}

// Create makes the lease, held by us.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Create)
}

// Update takes or renews the lease.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.renew(ctx, record, l.Interface.Update)
}

// renew sends a request that makes the lease ours. A process whose fence closed sends none: it would keep its successor
// waiting. The elector repeats a request that failed with the time of the first: if that one arrived nevertheless, the
// second would change nothing that others see, and they would wait from the first. So each has its own time.
func (l *Lock) renew(ctx context.Context, record resourcelock.LeaderElectionRecord,
	send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	if record.HolderIdentity != l.Identity() {
		return fmt.Errorf("lease %s: cannot be written for holder %q, only for %q", l.Describe(), record.HolderIdentity,
			l.Identity())
	}
	if err := l.fence.closed(); err != nil {
		return err
	}
	sent := l.fence.clock.Now()
	record.RenewTime = metav1.NewTime(sent)
	if err := send(ctx, record); err != nil {
		return err
	}
	l.fence.renewed(sent)
	return nil
}

// Release gives the lease up, so that another process need not wait for its end. The fence closes before the request
// is sent. It must be called after all guarded work and the elector have ended. It does nothing if the lease is not
// ours, and leaves it alone if it was lost: what was lost is not surely ours to give.
func (l *Lock) Release(ctx context.Context) error {
	l.fence.release()
	select {
	case <-l.fence.Lost():
		return nil
	default:
	}
	for {
		record, _, err := l.Interface.Get(ctx)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("release lease %s: %w", l.Describe(), err)
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
		// A renewal that was cancelled on its way may have arrived in between.
		if apierrors.IsConflict(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("release lease %s: %w", l.Describe(), err)
		}
		return nil
	}
}
