package fence

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// ErrFenced is what every error of a closed fence wraps: the action it guarded was not taken.
var ErrFenced = errors.New("fenced off: the leader's lease is not surely ours")

// Fence says whether this process surely holds the lease. Its methods may be called concurrently.
type Fence struct {
	clock    clock.WithTickerAndDelayedExecution
	deadline time.Duration

	// base is cancelled when the fence closes for good.
	base   context.Context
	cancel context.CancelCauseFunc
	lost   chan struct{}

	mu        sync.Mutex
	state     state
	lastRenew time.Time
	timer     clock.Timer
	reason    error
}

type state int

const (
	notYetLeading state = iota
	leading
	lost
	released
	unguarded
)

// New returns the fence of a process that is not the leader yet. It is open from the first renewal that Guard's lock
// reports until renewDeadline after the latest one. The clock may be nil: the real one.
func New(renewDeadline time.Duration, c clock.WithTickerAndDelayedExecution) *Fence {
	if c == nil {
		c = clock.RealClock{}
	}
	f := &Fence{clock: c, deadline: renewDeadline, lost: make(chan struct{})}
	f.base, f.cancel = context.WithCancelCause(context.Background())
	return f
}

// AlwaysOpen returns the fence of a process without leader election.
func AlwaysOpen() *Fence {
	f := New(0, nil)
	f.state = unguarded
	return f
}

// Check returns nil while the lease is surely ours, else an error that wraps ErrFenced and says why it is not. What
// passed the check must be sent at once.
func (f *Fence) Check() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch f.state {
	case unguarded:
		return nil
	case notYetLeading:
		return fmt.Errorf("%w: not elected", ErrFenced)
	case leading:
		f.expireLocked()
	}
	return f.reason
}

// expireLocked closes the fence of a leader whose last renewal is too long ago.
func (f *Fence) expireLocked() {
	if age := f.clock.Since(f.lastRenew); age >= f.deadline {
		f.closeLocked(lost, fmt.Errorf("%w: last renewed %s ago, the deadline is %s", ErrFenced, age.Round(time.Millisecond),
			f.deadline))
	}
}

// Context returns the context from which all work is derived. It is cancelled, with a cause that wraps ErrFenced,
// when the fence closes for good: not before the election.
func (f *Fence) Context() context.Context { return f.base }

// With returns a context that ends with parent or when the fence closes for good, whichever comes first.
func (f *Fence) With(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(f.base, func() { cancel(context.Cause(f.base)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// Lost is closed when the lease was lost; a release does not close it.
func (f *Fence) Lost() <-chan struct{} { return f.lost }

// closed returns why the fence closed for good, nil if it did not. In a process that was stopped, the elector may ask
// before the fence's own timer fires.
func (f *Fence) closed() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		f.expireLocked()
	}
	return f.reason
}

// renewed notes a successful renewal whose request was sent after the given time. It cannot open a fence that closed
// for good.
func (f *Fence) renewed(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		// The answer may come after the deadline and before anybody asked.
		f.expireLocked()
	}
	if f.state != notYetLeading && f.state != leading {
		return
	}
	f.state, f.lastRenew = leading, sent
	if f.timer != nil {
		f.timer.Stop()
	}
	// The check runs in a goroutine of its own because a fake clock calls back with its lock held.
	f.timer = f.clock.AfterFunc(f.deadline-f.clock.Since(sent), func() { go func() { _ = f.Check() }() })
}

// lose closes the fence for good if it is open, because of what was seen.
func (f *Fence) lose(seen string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		f.closeLocked(lost, fmt.Errorf("%w: %s", ErrFenced, seen))
	}
}

// release closes the fence for good, at our own will. A lease that ran out is lost anyway: in a process that was
// frozen, the elector may see that before the fence's own timer does.
func (f *Fence) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		f.expireLocked()
	}
	if f.state == leading || f.state == notYetLeading {
		f.closeLocked(released, fmt.Errorf("%w: released", ErrFenced))
	}
}

func (f *Fence) closeLocked(to state, reason error) {
	f.state, f.reason = to, reason
	if f.timer != nil {
		f.timer.Stop()
	}
	f.cancel(reason)
	if to == lost {
		close(f.lost)
	}
}

// Transport returns a transport that asks the fence immediately before every request that may change something (any
// method but GET, HEAD and OPTIONS), retries of the client included. A client made with it cannot forget the fence.
func Transport(next http.RoundTripper, f *Fence) http.RoundTripper {
	return transport{next: next, fence: f}
}

type transport struct {
	next  http.RoundTripper
	fence *Fence
}

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	switch request.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		return t.next.RoundTrip(request)
	}
	if err := t.fence.Check(); err != nil {
		if request.Body != nil {
			_ = request.Body.Close()
		}
		return nil, err
	}
	return t.next.RoundTrip(request)
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
