package cli

import (
	"net/http"
	"sync"
	"time"
)

// serverClock computes the API server's time from the dates in its responses. Commands compare timestamps in objects
// with this time, because the local clock may differ.
type serverClock struct {
	mu    sync.Mutex
	ahead time.Duration
	now   func() time.Time
}

// Now returns the server's time, accurate to a second. Before the first response, it is the local time.
func (s *serverClock) Now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now().Add(s.ahead)
}

// wrap returns a transport that sets the clock to the date in each response.
func (s *serverClock) wrap(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		answer, err := next.RoundTrip(r)
		if err == nil {
			if date, parseErr := http.ParseTime(answer.Header.Get("Date")); parseErr == nil {
				s.setTime(date)
			}
		}
		return answer, err
	})
}

// setTime corrects the clock with the date in a response of the API server. The date has no fractions of a second, so
// small differences are ignored.
func (s *serverClock) setTime(date time.Time) {
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
