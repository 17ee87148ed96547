package versionskew

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

func TestTheVersionIsRequestedAtMostOncePerPoll(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Unix(1, 0))
	asked, answer, failure := 0, "v1.36.3", error(nil)
	s := NewServer(func(context.Context) (string, error) { asked++; return answer, failure }, clock)
	step := func(pass time.Duration, want string, wantAsked int) {
		t.Helper()
		clock.SetTime(clock.Now().Add(pass))
		if got := s.Version(t.Context()); got != want || asked != wantAsked {
			t.Errorf("Version() = %q after %d requests, want %q after %d", got, asked, want, wantAsked)
		}
	}
	step(0, "v1.36.3", 1)
	answer = "v1.37.0"
	step(Poll-time.Second, "v1.36.3", 1)
	step(time.Second, "v1.37.0", 2)
	failure = errors.New("unreachable")
	step(Poll, "v1.37.0", 3)
	step(retryAfter-time.Second, "v1.37.0", 3)
	step(time.Second, "v1.37.0", 4)
	answer, failure = "v1.38.0", nil
	step(retryAfter, "v1.38.0", 5)
}

func TestTheVersionIsEmptyIfTheServerNeverAnswered(t *testing.T) {
	s := NewServer(func(context.Context) (string, error) { return "v0", errors.New("unreachable") },
		clocktesting.NewFakePassiveClock(time.Unix(1, 0)))
	if got := s.Version(t.Context()); got != "" {
		t.Errorf("Version() = %q, want none", got)
	}
}

func TestASilentServerDelaysCallersBriefly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		s := NewServer(func(ctx context.Context) (string, error) {
			asked.Add(1)
			<-ctx.Done()
			return "", ctx.Err()
		}, clocktesting.NewFakePassiveClock(time.Unix(1, 0)))
		began := time.Now()
		var callers sync.WaitGroup
		for range 10 {
			callers.Go(func() {
				if got := s.Version(t.Context()); got != "" {
					t.Errorf("Version() = %q, want none", got)
				}
			})
		}
		callers.Wait()
		if took := time.Since(began); took > answerTimeout || asked.Load() != 1 {
			t.Errorf("ten callers waited %s for %d requests, want at most %s and one request", took, asked.Load(), answerTimeout)
		}
	})
}
