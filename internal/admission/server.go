package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveTime is how long the webhook is served after the process is asked to stop. During this time, each response
// contains the header "Connection: close", so that the API server connects to another replica.
const leaveTime = 500 * time.Millisecond

// server shuts down without losing a request. During the shutdown, the server answers requests, but closes each
// connection after the response. API servers then connect to another replica.
type server struct {
	webhook.Server
	leaving <-chan struct{}
	leave   time.Duration // leaveTime, except in tests
}

// leaveAfter makes the server close its connections when ctx ends.
func (s *server) leaveAfter(ctx context.Context) { s.leaving = ctx.Done() }

// Register implements webhook.Server.
func (s *server) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.leaving:
			// HTTP/2 has no Connection header. The HTTP server sends a GOAWAY frame instead.
			w.Header().Set("Connection", "close")
		default:
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements webhook.Server. It returns when ctx has ended and leaveTime has passed since the request to stop.
func (s *server) Start(ctx context.Context) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		select {
		case <-s.leaving:
		case <-ctx.Done():
		case <-serving.Done():
			return
		}
		timer := time.NewTimer(s.leave)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-serving.Done():
			return
		}
		<-ctx.Done()
		stop()
	})
	err := s.Server.Start(serving)
	stop()
	waiting.Wait()
	return err
}
