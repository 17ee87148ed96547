package server

import (
	"maps"
	"sync"
	"time"

	"machinist.dev/machinist/simcloud"
)

// dropped is the outcome of a call whose connection was closed by a fault.
const dropped = "Dropped"

type statistics struct {
	start time.Time
	mu    sync.Mutex
	calls map[string]simcloud.CallStatistics
}

// count counts a call. The outcome of a successful call is "".
func (s *statistics) count(operation, outcome string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls == nil {
		s.calls = map[string]simcloud.CallStatistics{}
	}
	c := s.calls[operation]
	c.Total++
	if outcome != "" {
		if c.Errors == nil {
			c.Errors = map[string]int{}
		}
		c.Errors[outcome]++
	}
	s.calls[operation] = c
}

func (s *statistics) snapshot() *simcloud.Statistics {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := &simcloud.Statistics{StartTime: s.start, Calls: map[string]simcloud.CallStatistics{}}
	for operation, c := range s.calls {
		c.Errors = maps.Clone(c.Errors)
		out.Calls[operation] = c
	}
	return out
}

func outcome(err error) string {
	if code := simcloud.CodeOf(err); code != "" {
		return string(code)
	}
	return string(simcloud.CodeInternalError)
}
