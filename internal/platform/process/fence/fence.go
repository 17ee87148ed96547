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

// ErrFenced is the cause of the error that a closed fence returns instead of running an action.
var ErrFenced = errors.New("fenced off: this process may no longer hold the leader's Lease")

// Fence determines whether this process certainly holds the Lease. The methods of Fence may be called concurrently.
type Fence struct {
	clock    clock.WithTickerAndDelayedExecution
	deadline time.Duration

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

// New returns the fence of a process that is not the leader yet. The elector must use the lock that Guard returns,
// which records each renewal of the Lease in the fence. The fence opens when this process acquires the Lease. The fence
// closes when the latest renewal is older than renewDeadline. A nil clock means the real clock.
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

// Check returns nil while this process certainly holds the Lease. Otherwise, Check returns an error that wraps
// ErrFenced and names the reason. Send the guarded request immediately after the check.
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

func (f *Fence) expireLocked() {
	if age := f.clock.Since(f.lastRenew); age >= f.deadline {
		f.closeLocked(lost, fmt.Errorf("%w: last renewed %s ago, the deadline is %s", ErrFenced, age.Round(time.Millisecond),
			f.deadline))
	}
}

// Context returns the context for all work of the process. The context is cancelled when the fence closes for good,
// with a cause that wraps ErrFenced.
func (f *Fence) Context() context.Context { return f.base }

// WithContext derives a context from the parent context. The derived context also ends when the fence closes
// permanently.
func (f *Fence) WithContext(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stop := context.AfterFunc(f.base, func() { cancel(context.Cause(f.base)) })
	return ctx, func() {
		stop()
		cancel(context.Canceled)
	}
}

// LeaseLost returns a channel that is closed when the process loses the Lease. The channel stays open when the
// process releases the Lease.
func (f *Fence) LeaseLost() <-chan struct{} { return f.lost }

// closedReason returns the reason why the fence closed permanently, or nil. The method checks the deadline, because
// the elector of a resumed process may call it before the timer of the fence fires.
func (f *Fence) closedReason() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		f.expireLocked()
	}
	return f.reason
}

// noteRenewal records a successful renewal. The request was sent at the given time or later. If the fence has closed
// permanently, noteRenewal does not open it again.
func (f *Fence) noteRenewal(sent time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		// The answer may arrive after the deadline, and no other call may have checked the deadline yet. In this case,
		// close the fence now.
		f.expireLocked()
	}
	if f.state != notYetLeading && f.state != leading {
		return
	}
	f.state, f.lastRenew = leading, sent
	if f.timer != nil {
		f.timer.Stop()
	}
	// The check runs in a separate goroutine, because a fake clock holds its lock during the callback.
	f.timer = f.clock.AfterFunc(f.deadline-f.clock.Since(sent), func() { go func() { _ = f.Check() }() })
}

func (f *Fence) lose(reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state == leading {
		f.closeLocked(lost, fmt.Errorf("%w: %s", ErrFenced, reason))
	}
}

// release closes the fence for good, because this process gives up the Lease. An expired Lease counts as lost. In a
// process that was frozen, the elector may notice the expiry before the timer of the fence fires.
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

// Transport returns a transport that checks the fence immediately before each request that may change something. Only
// GET, HEAD and OPTIONS are exempt. Retries are checked too.
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

// WrappedRoundTripper gives client-go access to the wrapped transport.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
