package fence

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const deadline = 10 * time.Second

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

type lease struct {
	clock   *clocktesting.FakeClock
	took    time.Duration // time from sending a write until the answer
	err     error
	holder  string
	writes  []resourcelock.LeaderElectionRecord
	missing bool
}

func (l *lease) Get(context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	if l.missing {
		return nil, nil, apierrors.NewNotFound(leases, "lease")
	}
	return &resourcelock.LeaderElectionRecord{HolderIdentity: l.holder}, nil, nil
}

func (l *lease) write(r resourcelock.LeaderElectionRecord) error {
	l.clock.Step(l.took)
	if l.err != nil {
		return l.err
	}
	l.holder = r.HolderIdentity
	l.writes = append(l.writes, r)
	return nil
}

func (l *lease) Create(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r)
}
func (l *lease) Update(_ context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(r)
}
func (l *lease) RecordEvent(string) {}
func (l *lease) Identity() string   { return "us" }
func (l *lease) Describe() string   { return "ns/lease" }

var ours = resourcelock.LeaderElectionRecord{HolderIdentity: "us"}

func setUp(t *testing.T) (*Fence, *Lock, *lease) {
	t.Helper()
	api := &lease{clock: clocktesting.NewFakeClock(time.Now())}
	f := New(deadline, api.clock)
	return f, f.Guard(api), api
}

func elected(t *testing.T) (*Fence, *Lock, *lease) {
	t.Helper()
	f, lock, api := setUp(t)
	if err := lock.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	mustBeOpen(t, f)
	return f, lock, api
}

func mustBeOpen(t *testing.T, f *Fence) {
	t.Helper()
	if err := f.Check(); err != nil {
		t.Fatalf("the fence is closed: %v", err)
	}
	if err := f.Context().Err(); err != nil {
		t.Fatalf("work is cancelled while the fence is open: %v", context.Cause(f.Context()))
	}
}

func mustBeLost(t *testing.T, f *Fence) {
	t.Helper()
	if err := f.Check(); !errors.Is(err, ErrFenced) {
		t.Fatalf("Check() = %v, want an error that wraps ErrFenced", err)
	}
	mustReport(t, f)
}

// mustReport waits until Context and LeaseLost report that the fence is closed. mustReport does not call Check,
// because the fence must also end work that never calls Check.
func mustReport(t *testing.T, f *Fence) {
	t.Helper()
	select {
	case <-f.Context().Done():
	case <-time.After(10 * time.Second):
		t.Fatal("work was not cancelled")
	}
	if cause := context.Cause(f.Context()); !errors.Is(cause, ErrFenced) {
		t.Errorf("cause = %v, want ErrFenced", cause)
	}
	select {
	case <-f.LeaseLost():
	case <-time.After(10 * time.Second):
		t.Error("Lost is not closed")
	}
}

func TestBeforeTheElectionTheFenceIsClosedAndNothingIsCancelled(t *testing.T) {
	f, lock, api := setUp(t)
	api.holder = "them"
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	api.clock.Step(10 * deadline)
	if err := f.Check(); !errors.Is(err, ErrFenced) {
		t.Errorf("Check() = %v, want ErrFenced", err)
	}
	if err := f.Context().Err(); err != nil {
		t.Errorf("the context of a candidate ended: %v", err)
	}
}

// Rule: lease-counts-from-send.
func TestTheFenceClosesExactlyADeadlineAfterTheLastRenewal(t *testing.T) {
	f, lock, api := elected(t)
	for range 5 {
		api.clock.Step(deadline - time.Millisecond)
		mustBeOpen(t, f)
		if err := lock.Update(t.Context(), ours); err != nil {
			t.Fatal(err)
		}
	}
	api.clock.Step(deadline - time.Nanosecond)
	mustBeOpen(t, f)
	api.clock.Step(time.Nanosecond)
	mustBeLost(t, f)
}

func TestTheTimerOfTheFenceCancelsWork(t *testing.T) {
	f, lock, api := elected(t)
	api.clock.Step(deadline / 2)
	if err := lock.Update(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	api.clock.Step(deadline / 2) // The timer of the first renewal must not fire.
	mustBeOpen(t, f)
	api.clock.Step(deadline / 2)
	mustReport(t, f)
}

// Rule: lease-counts-from-send.
func TestTheDeadlineCountsFromTheTimeBeforeTheRequest(t *testing.T) {
	f, lock, api := elected(t)
	api.took = 4 * time.Second
	if err := lock.Update(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	api.clock.Step(deadline - api.took - time.Nanosecond)
	mustBeOpen(t, f)
	api.clock.Step(time.Nanosecond)
	mustBeLost(t, f)
}

func TestARenewalAnsweredAfterTheDeadlineDoesNotCount(t *testing.T) {
	f, lock, api := elected(t)
	api.clock.Step(deadline - time.Second)
	api.took = 2 * time.Second
	_ = lock.Update(t.Context(), ours)
	mustBeLost(t, f)
}

func TestAFailedRenewalDoesNotCount(t *testing.T) {
	f, lock, api := elected(t)
	api.clock.Step(deadline - time.Second)
	api.err = context.DeadlineExceeded // The renewal may have been applied or not.
	if err := lock.Update(t.Context(), ours); err == nil {
		t.Fatal("no error")
	}
	mustBeOpen(t, f)
	api.clock.Step(time.Second)
	mustBeLost(t, f)
}

func TestTheFenceClosesAtOnceIfTheLeaseHasAnotherHolder(t *testing.T) {
	for name, change := range map[string]func(*lease){
		"another holder": func(l *lease) { l.holder = "them" },
		"no holder":      func(l *lease) { l.holder = "" },
		"no lease":       func(l *lease) { l.missing = true },
	} {
		t.Run(name, func(t *testing.T) {
			f, lock, api := elected(t)
			change(api)
			_, _, _ = lock.Get(t.Context())
			mustBeLost(t, f)
		})
	}
}

func TestReadingTheLeaseDoesNotRenewIt(t *testing.T) {
	f, lock, api := elected(t)
	api.clock.Step(deadline / 2)
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	mustBeOpen(t, f)
	api.clock.Step(deadline / 2)
	mustBeLost(t, f)
}

func TestAProcessThatLostTheLeaseNeitherRenewsNorReleasesIt(t *testing.T) {
	f, lock, api := elected(t)
	api.clock.Step(deadline)
	mustBeLost(t, f)
	written := len(api.writes)
	if err := lock.Update(t.Context(), ours); !errors.Is(err, ErrFenced) {
		t.Errorf("Update() = %v, want ErrFenced", err)
	}
	if err := lock.Create(t.Context(), ours); !errors.Is(err, ErrFenced) {
		t.Errorf("Create() = %v, want ErrFenced", err)
	}
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v", err)
	}
	if len(api.writes) != written {
		t.Errorf("the process wrote after it lost the Lease: %v", api.writes[written:])
	}
	mustBeLost(t, f)
}

// lateClock is the clock of a process that was frozen: time has passed, but no timer has fired yet.
type lateClock struct{ *clocktesting.FakeClock }

func (c lateClock) AfterFunc(time.Duration, func()) clock.Timer { return c.NewTimer(time.Hour) }

func TestAReleaseBeforeTheTimerDetectsTheLostLease(t *testing.T) {
	api := &lease{clock: clocktesting.NewFakeClock(time.Now())}
	f := New(deadline, lateClock{api.clock})
	lock := f.Guard(api)
	if err := lock.Create(t.Context(), ours); err != nil {
		t.Fatal(err)
	}
	api.clock.Step(deadline)
	written := len(api.writes)
	if err := lock.Release(t.Context()); err != nil {
		t.Errorf("Release() = %v", err)
	}
	if len(api.writes) != written {
		t.Errorf("the process wrote after it lost the Lease: %v", api.writes[written:])
	}
	mustBeLost(t, f)
}

func TestReleaseClosesTheFenceBeforeItReleasesTheLease(t *testing.T) {
	f, lock, api := elected(t)
	api.err = errors.New("the API server is unreachable")
	if err := lock.Release(t.Context()); err == nil || !strings.Contains(err.Error(), "ns/lease") {
		t.Errorf("Release() = %v, want an error that names the Lease", err)
	}
	if err := f.Check(); !errors.Is(err, ErrFenced) {
		t.Errorf("Check() = %v after a release that failed, want ErrFenced", err)
	}

	f, lock, api = elected(t)
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if api.holder != "" {
		t.Errorf("holder = %q, want none", api.holder)
	}
	if err := f.Check(); !errors.Is(err, ErrFenced) {
		t.Errorf("Check() = %v, want ErrFenced", err)
	}
	select {
	case <-f.LeaseLost():
		t.Error("a released Lease counts as lost")
	default:
	}
	if err := lock.Update(t.Context(), ours); !errors.Is(err, ErrFenced) {
		t.Errorf("Update() = %v after the release, want ErrFenced", err)
	}
}

func TestReleaseDoesNotChangeTheLeaseOfAnotherHolder(t *testing.T) {
	_, lock, api := setUp(t)
	api.holder = "them"
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(api.writes) > 0 || api.holder != "them" {
		t.Errorf("holder = %q after writes %v", api.holder, api.writes)
	}
}

func TestReleaseIsRepeatedAfterAConflict(t *testing.T) {
	_, lock, api := elected(t)
	conflicts := 2
	lock.Interface = conflicting{api, &conflicts}
	if err := lock.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if api.holder != "" || conflicts != 0 {
		t.Errorf("holder = %q, %d conflicts left", api.holder, conflicts)
	}
}

type conflicting struct {
	*lease
	left *int
}

func (c conflicting) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	if *c.left > 0 {
		*c.left--
		return apierrors.NewConflict(leases, "lease", errors.New("changed"))
	}
	return c.lease.Update(ctx, r)
}

func TestTheElectorCannotWriteAnotherHolder(t *testing.T) {
	f, lock, api := elected(t)
	written := len(api.writes)
	if err := lock.Update(t.Context(), resourcelock.LeaderElectionRecord{}); err == nil {
		t.Error("the elector released the Lease")
	}
	if len(api.writes) != written {
		t.Errorf("the elector wrote %v", api.writes[written:])
	}
	mustBeOpen(t, f)
}

func TestWithEndsWithTheFenceOrTheParent(t *testing.T) {
	f, _, api := elected(t)
	byParent, cancel := context.WithCancel(t.Context())
	first, stopFirst := f.WithContext(byParent)
	defer stopFirst()
	second, stopSecond := f.WithContext(t.Context())
	defer stopSecond()
	cancel()
	<-first.Done()
	if second.Err() != nil {
		t.Fatal("a context ended with the parent of another context")
	}
	api.clock.Step(deadline)
	<-second.Done()
	if cause := context.Cause(second); !errors.Is(cause, ErrFenced) {
		t.Errorf("cause = %v, want ErrFenced", cause)
	}
}

func TestTheFenceIsOpenWithoutLeaderElection(t *testing.T) {
	mustBeOpen(t, AlwaysOpen())
}

type recordedTransport struct{ sent []string }

func (r *recordedTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	r.sent = append(r.sent, request.Method)
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: request}, nil
}

// Rule: writes-check-lease.
func TestTransportStopsWritesIfTheFenceIsClosed(t *testing.T) {
	f, _, api := elected(t)
	sent := &recordedTransport{}
	c := http.Client{Transport: Transport(sent, f)}
	do := func(method string) error {
		request, err := http.NewRequestWithContext(t.Context(), method, "http://127.0.0.1/", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		response, err := c.Do(request)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	for _, method := range writes {
		if err := do(method); err != nil {
			t.Errorf("%s by the leader: %v", method, err)
		}
	}
	api.clock.Step(deadline)
	sent.sent = nil
	for _, method := range writes {
		if err := do(method); !errors.Is(err, ErrFenced) {
			t.Errorf("%s: %v, want ErrFenced", method, err)
		}
	}
	if err := do(http.MethodGet); err != nil {
		t.Errorf("%s: %v, want it allowed", http.MethodGet, err)
	}
	if len(sent.sent) != 1 || sent.sent[0] != http.MethodGet {
		t.Errorf("sent: %v", sent.sent)
	}
}
