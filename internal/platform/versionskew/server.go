package versionskew

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Poll is how often to ask for the version of an API server again while something waits for another one: changes of
	// it have no events. For that long an answer is used.
	Poll = time.Minute
	// retryAfter is how long no question follows one without an answer.
	retryAfter = 30 * time.Second
	// answerTimeout bounds how long an API server that does not answer delays a caller.
	answerTimeout = 2 * time.Second
)

// Server knows the version of an API server. It asks for it only when it is called, and at most once for each Poll.
type Server struct {
	ask   func(context.Context) (string, error)
	clock clock.PassiveClock
	// asking holds an element while a caller asks. Others wait until then, or until their own time is over.
	asking chan struct{}

	mu      sync.Mutex
	version string
	next    time.Time // when to ask again
}

// NewServer returns a Server that asks by the function.
func NewServer(ask func(context.Context) (string, error), now clock.PassiveClock) *Server {
	return &Server{ask: ask, clock: now, asking: make(chan struct{}, 1)}
}

// Version returns the version as the API server states it, such as v1.36.3. While the API server does not answer, it is
// the last one that is known; empty if none is.
func (s *Server) Version(ctx context.Context) string {
	version, current := s.known()
	if current {
		return version
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	case <-ctx.Done():
		return version
	}
	if version, current = s.known(); current {
		return version // Another caller has asked meanwhile.
	}
	answer, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.next = s.clock.Now().Add(retryAfter)
		return s.version
	}
	s.version, s.next = answer, s.clock.Now().Add(Poll)
	return s.version
}

// known returns the last version, and whether it is too early to ask again.
func (s *Server) known() (version string, current bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.clock.Now().Before(s.next)
}
