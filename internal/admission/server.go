package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveTime is how long the webhook is served after the process was asked to end. An API server keeps its
// connection until it is asked to leave it, which the answer to its next request does; the connections on which
// nothing came for that long are closed without a word.
const leaveTime = 500 * time.Millisecond

// server ends without losing a request: it answers on, and has whoever asks come back on another connection, which
// leads to another replica as soon as this one accepts none.
type server struct {
	webhook.Server
	leaving <-chan struct{} // closed when the process must end
	leave   time.Duration   // leaveTime but in tests
}

// leaveAfter has it leave when ctx ends.
func (s *server) leaveAfter(ctx context.Context) { s.leaving = ctx.Done() }

// Register implements webhook.Server.
func (s *server) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.leaving:
			// With HTTP/2 as well: the server translates it.
			w.Header().Set("Connection", "close")
		default:
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements webhook.Server. It serves until ctx ends, and the time to leave has passed since the process was
// reported to end.
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
