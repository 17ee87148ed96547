package cli

import (
	"net/http"
	"sync"
	"time"
)

// serverClock derives the time from the API server's responses. Objects contain times of the server, and the clock of
// the local computer may differ from it.
type serverClock struct {
	mu sync.Mutex
	// ahead is the server's time minus the local time.
	ahead time.Duration
	now   func() time.Time
}

// Now returns the server's time, accurate to a second. It returns the local time until a response contained a date.
func (s *serverClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Add(s.ahead)
}

// wrap returns a transport that reads the date of each response of next.
func (s *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			if date, parseErr := http.ParseTime(answer.Header.Get("Date")); parseErr == nil {
				s.set(date)
			}
		}
		return answer, err
	})
}

// set sets the clock to the server's time. It ignores differences that result from the whole seconds of the header.
func (s *serverClock) set(date time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch ahead := date.Sub(s.now()); {
	case ahead > 0, ahead < -2*time.Second:
		s.ahead = ahead
	default:
		s.ahead = 0
	}
}

// transport is a function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
