package admission

import (
	"context"
	"net/http"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveTime is the time for which the webhook is still served after the process has received the request to stop.
// An API server keeps its connection open until a response asks it to close the connection. Connections without a
// request within leaveTime are closed.
const leaveTime = 500 * time.Millisecond

// server shuts down without losing a request. It continues to answer requests, and closes each connection after a
// response. Because this replica accepts no new connections then, API servers send the next request to another
// replica.
type server struct {
	webhook.Server
	leaving <-chan struct{} // closed when the process must end
	leave   time.Duration   // leaveTime, except in tests
}

// leaveAfter makes the server close its connections after ctx has ended.
func (s *server) leaveAfter(ctx context.Context) { s.leaving = ctx.Done() }

// Register implements webhook.Server.
func (s *server) Register(path string, hook http.Handler) {
	s.Server.Register(path, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-s.leaving:
			// HTTP/2 has no Connection header, so the HTTP server sends a GOAWAY frame on an HTTP/2 connection
			// instead.
			w.Header().Set("Connection", "close")
		default:
		}
		hook.ServeHTTP(w, r)
	}))
}

// Start implements webhook.Server. The server stops as soon as ctx has ended and leaveTime has passed since the
// request to stop.
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
