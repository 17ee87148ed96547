package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveTime is how long the webhook is still served after the process was asked to end. An API server keeps its
// connection until the answer to its next request closes it. Connections without a request within leaveTime are closed.
const leaveTime = 500 * time.Millisecond

// server shuts down without losing a request. It continues to answer, and closes each connection after the answer, so
// that the next request goes to another replica once this replica accepts no more connections.
type server struct {
	webhook.Server
	leaving <-chan struct{} // closed when the process must end
	leave   time.Duration   // leaveTime, except in tests
}

// leaveAfter makes the server close connections after ctx ends.
func (s *server) leaveAfter(ctx context.Context) { s.leaving = ctx.Done() }

// Register implements webhook.Server.
func (s *server) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.leaving:
			// HTTP/2 has no such header: the server sends GOAWAY instead.
			w.Header().Set("Connection", "close")
		default:
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements webhook.Server. It serves until ctx has ended and leaveTime has passed since the process was asked
// to end.
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
