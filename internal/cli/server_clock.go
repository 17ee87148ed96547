package cli

import (
	"net/http"
	"sync"
	"time"
)

// serverClock computes the time according to the API server's clock, from the dates in its responses. The timestamps in
// objects are compared with this time, because the clock of the local computer may differ.
type serverClock struct {
	mu sync.Mutex
	// ahead is the difference between the server's clock and the local clock. It is positive if the server's clock is
	// ahead.
	ahead time.Duration
	now   func() time.Time
}

// Now returns the time according to the server's clock, accurate to a second. Until the first response with a date has
// arrived, Now returns the local time.
func (s *serverClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Add(s.ahead)
}

// wrap returns a transport that sends requests with the transport next, and sets the clock to the date in each
// response.
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

// set adjusts the clock to the date in a response. The date has no fractions of a second, so small differences are
// ignored.
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

// transport is a type of function that implements http.RoundTripper.
type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
