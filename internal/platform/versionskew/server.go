package versionskew

import (
	"context"
	"sync"
	"time"

	"k8s.io/utils/clock"
)

const (
	// Poll is how long the version of an API server is cached. A controller that waits for another version must ask
	// again after this time, because a new version causes no event.
	Poll = time.Minute
	// retryAfter is the minimum time between a failed request and the next request.
	retryAfter    = 30 * time.Second
	answerTimeout = 2 * time.Second
)

// Server returns the version of an API server. Server requests the version at most once per Poll.
type Server struct {
	ask   func(context.Context) (string, error)
	clock clock.PassiveClock
	// The channel inFlight holds an element while a caller is requesting the version. Other callers wait for this
	// request or for their own timeout.
	inFlight chan struct{}

	mu          sync.Mutex
	version     string
	nextRequest time.Time // time of the next request
}

// NewServer creates a Server that requests the version of the API server with the given function.
func NewServer(ask func(context.Context) (string, error), now clock.PassiveClock) *Server {
	return &Server{ask: ask, clock: now, inFlight: make(chan struct{}, 1)}
}

// Version returns the version of the API server, such as v1.36.3. If the API server does not answer, it returns the
// last known version, or "" if there is none.
func (s *Server) Version(ctx context.Context) string {
	version, isFresh := s.knownVersion()
	if isFresh {
		return version
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	case <-ctx.Done():
		return version
	}
	if version, isFresh = s.knownVersion(); isFresh {
		return version // Another caller has requested the version in the meantime.
	}
	answer, err := s.ask(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.nextRequest = s.clock.Now().Add(retryAfter)
		return s.version
	}
	s.version, s.nextRequest = answer, s.clock.Now().Add(Poll)
	return s.version
}

// knownVersion returns the version that the API server last reported. isFresh is false if Version must request it
// again.
func (s *Server) knownVersion() (version string, isFresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.version, s.clock.Now().Before(s.nextRequest)
}
