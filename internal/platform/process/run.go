package process

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// ExitFenced is the exit code of a process that lost its lease.
	ExitFenced = 3
	// fencedWait is how long work that was cancelled because the lease was lost is waited for.
	fencedWait = 3 * time.Second
	// releaseWait is how long the release of the lease may take. It is part of the graceful shutdown's time.
	releaseWait = 2 * time.Second
)

// Run runs the process until ctx ends or the lease is lost. It can be called once.
//
// It waits for the control cluster, calls setup, fills the caches and starts the manager. Nothing of that waits for
// the target cluster, and no wait has an end but ctx's. When ctx ends, work is cancelled and waited for, and the
// lease is released; an error then says that some of it did not end in time. When the lease is lost, all work is
// cancelled and the process is ended by Options.Exit with ExitFenced as soon as it ended and Options.Flush returned,
// after 3 seconds at the latest. When a cluster was put back to older data, all work is cancelled as well, and the
// error reports that.
func (o *Process) Run(ctx context.Context, setup func(context.Context) error) (err error) {
	ended := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { o.exitWhenLost(ended) })
	ctx, end := context.WithCancelCause(ctx)
	background.Go(func() { o.endWhenOlder(end, ended) })
	// What serves the reconcilers ends after them.
	serving, stopServing := context.WithCancel(context.Background())
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, errOlderData) {
			err = errors.Join(cause, err)
		}
		if o.options.Flush != nil {
			o.options.Flush()
		}
		end(nil)
		stopServing()
		close(ended)
		background.Wait()
	}()
	o.events.StartRecordingToSink(fieldSink{&coreclient.EventSinkImpl{Interface: o.core.Events("")}})
	defer o.events.Shutdown()
	background.Go(func() {
		if err := o.probes.serve(serving); err != nil {
			o.log.Error(err, "Probes are not served any more")
		}
	})

	background.Go(func() { o.watch.Run(serving) })

	working, cancel := o.fence.With(ctx)
	defer cancel()
	if err := o.prepare(working, setup); err != nil {
		return unlessEnded(ctx, err)
	}
	background.Go(func() { o.control.run(serving) })
	if o.target != nil {
		background.Go(func() { o.runTarget(serving) })
	}
	if err := o.await(working, "the control cluster's objects", fillPeriod, o.control.missingObjects); err != nil {
		return unlessEnded(ctx, err)
	}
	o.watch.Settle(working)
	o.waitingFor.Store(nil)
	return o.finish(o.manager.Start(working))
}

// prepare does what comes before anything is watched.
func (o *Process) prepare(ctx context.Context, setup func(context.Context) error) error {
	if err := o.await(ctx, "the control cluster's API", waitPeriod, o.control.answers); err != nil {
		return err
	}
	if err := o.await(ctx, "the control cluster's kinds", waitPeriod, o.missingKinds); err != nil {
		return err
	}
	if !o.options.NoClusterID {
		if err := o.await(ctx, "the cluster id", waitPeriod, o.identify); err != nil {
			return err
		}
	}
	for _, c := range []*Cluster{o.control, o.target} {
		if c == nil {
			continue
		}
		if err := c.makeInformers(ctx); err != nil {
			return err
		}
	}
	if setup != nil {
		if err := setup(ctx); err != nil {
			return fmt.Errorf("set up %s: %w", o.config.Name, err)
		}
	}
	if o.options.NoClusterID {
		return nil
	}
	if err := o.manager.Add(manager.RunnableFunc(o.keepIdentity)); err != nil {
		return fmt.Errorf("keep the record of the cluster id: %w", err)
	}
	return nil
}

// unlessEnded returns nil if ctx ended: what failed then failed because of that.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runTarget fills the target cluster's cache once there is somebody to ask: an informer that cannot list tries again
// ever less often.
func (o *Process) runTarget(ctx context.Context) {
	if !o.config.Shard().All() {
		// Which Nodes are a shard's depends on its Machines.
		select {
		case <-o.control.Filled():
		case <-ctx.Done():
			return
		}
	}
	if err := o.awaitQuietly(ctx, "the target cluster's API", waitPeriod, o.target.answers); err != nil {
		return // The process ended.
	}
	o.target.run(ctx)
}

// finish gives the lease back if all work ended, and returns why the manager did.
func (o *Process) finish(err error) error {
	if o.lock == nil {
		return err
	}
	select {
	case <-o.fence.Lost():
		return errors.Join(o.fence.Check(), err)
	default:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// Something still runs, so the lease must run out. The fence, and the end of the process, stop the rest.
		o.log.Error(err, "Not all work ended in time, so the lease is not released")
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if releaseErr := o.lock.Release(ctx); releaseErr != nil {
		o.log.Error(releaseErr, "The lease was not released, another process must wait for its end")
	}
	return err
}

// exitWhenLost ends the process when the lease was lost, whatever the manager does about it.
func (o *Process) exitWhenLost(ended <-chan struct{}) {
	select {
	case <-o.fence.Lost():
	case <-ended:
		select {
		case <-o.fence.Lost():
		default:
			return
		}
	}
	o.log.Error(o.fence.Check(), "The lease is lost: all work is cancelled and the process ends")
	deadline := o.clock.NewTimer(fencedWait)
	defer deadline.Stop()
	select {
	case <-ended:
	case <-deadline.C():
	}
	o.options.Exit(ExitFenced)
}
