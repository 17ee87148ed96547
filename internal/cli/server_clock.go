package cli

import (
	"net/http"
	"sync"
	"time"
)

// serverClock tells the time by the API server's answers. Times that the controllers compare with those of objects
// must be the server's, not those of the machine that somebody types at.
type serverClock struct {
	mu    sync.Mutex
	ahead time.Duration
	now   func() time.Time
}

// Now returns the time at the server, or the local one if no answer reported it yet. It is exact to a second.
func (s *serverClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Add(s.ahead)
}

// through listens to the answers that come through a transport.
func (s *serverClock) through(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			if date, parseErr := http.ParseTime(answer.Header.Get("Date")); parseErr == nil {
				s.heard(date)
			}
		}
		return answer, err
	})
}

// heard notes the time at the server. Differences that the header's whole seconds explain are none.
func (s *serverClock) heard(date time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ahead := date.Sub(s.now()); {
	case ahead > 0, ahead < -2*time.Second:
		s.ahead = ahead
	default:
		s.ahead = 0
	}
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
