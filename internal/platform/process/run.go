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
	// ExitFenced is the exit code of a process that lost its Lease.
	ExitFenced = 3
	// fencedWait is how long a process that lost its Lease waits for its cancelled work to end.
	fencedWait = 3 * time.Second
	// releaseWait is how long the release of the Lease may take. releaseWait is part of the graceful shutdown
	// timeout.
	releaseWait = 2 * time.Second
)

// Run runs the process until ctx ends or the Lease is lost. Call it once.
//
// Run waits for the control cluster, calls setup, fills the caches and starts the manager. It waits without a time
// limit. Run does not wait for the target cluster.
//
// When ctx ends, Run cancels all work, waits for it to end, and releases the Lease. It returns an error if some work
// did not end in time. When the Lease is lost, Run cancels all work, waits up to 3 seconds for it and for
// Options.Flush, and calls Options.Exit with ExitFenced. When the process detects that a cluster was restored to older
// data, Run cancels all work and returns an error.
func (p *Process) Run(ctx context.Context, setup func(context.Context) error) (err error) {
	ended := make(chan struct{})
	var background sync.WaitGroup
	background.Go(func() { p.exitWhenLost(ended) })
	ctx, end := context.WithCancelCause(ctx)
	background.Go(func() { p.cancelOnOlderData(end, ended) })
	// Caches, probes and the watch of the clusters must outlive the reconcilers.
	serving, stopServing := context.WithCancel(context.Background())
	defer func() {
		if cause := context.Cause(ctx); errors.Is(cause, errOlderData) {
			err = errors.Join(cause, err)
		}
		if p.options.Flush != nil {
			p.options.Flush()
		}
		end(nil)
		stopServing()
		close(ended)
		background.Wait()
	}()
	p.events.StartRecordingToSink(fieldSink{&coreclient.EventSinkImpl{Interface: p.core.Events("")}})
	defer p.events.Shutdown()
	background.Go(func() {
		if err := p.probes.serve(serving); err != nil {
			p.log.Error(err, "Stopped serving probes")
		}
	})

	background.Go(func() { p.watch.Run(serving) })

	working, cancel := p.fence.WithContext(ctx)
	defer cancel()
	if err := p.prepare(working, setup); err != nil {
		return unlessEnded(ctx, err)
	}
	background.Go(func() { p.control.run(serving) })
	if p.target != nil {
		background.Go(func() { p.runTarget(serving) })
	}
	if err := p.await(working, "the control cluster's objects", fillPeriod, p.control.missingObjects); err != nil {
		return unlessEnded(ctx, err)
	}
	p.watch.CheckUnreachable(working)
	p.waitingFor.Store(nil)
	return p.finish(p.manager.Start(working))
}

func (p *Process) prepare(ctx context.Context, setup func(context.Context) error) error {
	if err := p.await(ctx, "the control cluster's API", waitPeriod, p.control.checkReadyz); err != nil {
		return err
	}
	if err := p.await(ctx, "the control cluster's kinds", waitPeriod, p.missingKinds); err != nil {
		return err
	}
	if !p.options.NoClusterID {
		if err := p.await(ctx, "the cluster ID", waitPeriod, p.identify); err != nil {
			return err
		}
	}
	for _, c := range []*Cluster{p.control, p.target} {
		if c == nil {
			continue
		}
		if err := c.makeInformers(ctx); err != nil {
			return err
		}
	}
	if setup != nil {
		if err := setup(ctx); err != nil {
			return fmt.Errorf("set up %s: %w", p.config.Name, err)
		}
	}
	if p.options.NoClusterID {
		return nil
	}
	if err := p.manager.Add(manager.RunnableFunc(p.keepIdentity)); err != nil {
		return fmt.Errorf("add the check of the cluster ID record: %w", err)
	}
	return nil
}

// unlessEnded returns err, or nil if ctx has ended, because the end of ctx then caused the error.
func unlessEnded(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// runTarget waits until the API server of the target cluster answers, and then fills the cache. If the informers
// started earlier, they would wait longer after each failed list.
func (p *Process) runTarget(ctx context.Context) {
	if !p.config.Shard().IsUndivided() {
		select {
		case <-p.control.CacheFilled():
		case <-ctx.Done():
			return
		}
	}
	if err := p.awaitQuietly(ctx, "the target cluster's API", waitPeriod, p.target.checkReadyz); err != nil {
		return // The process is ending.
	}
	p.target.run(ctx)
}

// finish releases the Lease if all work has ended. It returns the error of the manager.
func (p *Process) finish(err error) error {
	if p.lock == nil {
		return err
	}
	select {
	case <-p.fence.LeaseLost():
		return errors.Join(p.fence.Check(), err)
	default:
	}
	if errors.Is(err, context.DeadlineExceeded) {
		// Work is still running, so the Lease must expire instead of being released. The fence prevents further writes,
		// and the work stops when the process ends.
		p.log.Error(err, "Not all work ended in time, so the Lease is not released")
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), releaseWait)
	defer cancel()
	if releaseErr := p.lock.Release(ctx); releaseErr != nil {
		p.log.Error(releaseErr, "Cannot release the Lease: another process can lead only after it expires")
	}
	return err
}

// exitWhenLost ends the process when the Lease was lost. It does not wait for the manager.
func (p *Process) exitWhenLost(ended <-chan struct{}) {
	select {
	case <-p.fence.LeaseLost():
	case <-ended:
		select {
		case <-p.fence.LeaseLost():
		default:
			return
		}
	}
	p.log.Error(p.fence.Check(), "Lost the Lease: cancelling all work and ending the process")
	deadline := p.clock.NewTimer(fencedWait)
	defer deadline.Stop()
	select {
	case <-ended:
	case <-deadline.C():
	}
	p.options.Exit(ExitFenced)
}
