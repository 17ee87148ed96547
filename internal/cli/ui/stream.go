package ui

import (
	"fmt"
	"net/http"
	"time"
)

// heartbeat is the maximum time between two messages on a stream. Without a new snapshot, the server sends a comment
// line, so that the server and the browser notice a lost connection.
const heartbeat = 15 * time.Second

// stream sends the version of each new snapshot as a server-sent event. The stream ends when the page is closed or
// the server shuts down.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	select {
	case s.streams <- struct{}{}:
		defer func() { <-s.streams }()
	default:
		http.Error(w, "Too many open pages receive updates of the fleet. Close some of these pages.",
			http.StatusServiceUnavailable)
		return
	}
	// A stream stays open, so it has no time limit.
	control := http.NewResponseController(w)
	if err := control.SetReadDeadline(time.Time{}); err != nil {
		http.Error(w, "This connection does not support streams.", http.StatusNotImplemented)
		return
	}
	versions, end := s.hub.subscribe()
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	send := func(version uint64) error {
		if _, err := fmt.Fprintf(w, "event: fleet\ndata: %d\n\n", version); err != nil {
			return err
		}
		return control.Flush()
	}
	if send(s.hub.snapshot().Version) != nil {
		return
	}
	beat := time.NewTicker(heartbeat)
	defer beat.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.shutdown:
			return
		case version := <-versions:
			if send(version) != nil {
				return
			}
		case <-beat.C:
			if _, err := fmt.Fprint(w, ": alive\n\n"); err != nil || control.Flush() != nil {
				return
			}
		}
	}
}
