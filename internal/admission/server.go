package admission

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// leaveTime is how long the webhook is served after the process is asked to stop. During this time, each response
// contains the header "Connection: close", so that API servers connect to another replica.
const leaveTime = 500 * time.Millisecond

// server limits its connections, and shuts down without losing a request. While shutting down, the server still
// answers requests, but closes each connection after the response. API servers then connect to another replica.
type server struct {
	webhook.Server // used only to register handlers, because its own listener has no limit
	serving        *ServingOptions
	started        atomic.Bool
	leaving        <-chan struct{}
	leave          time.Duration // equals leaveTime, except in tests
	connections    int           // equals maxConnections, except in tests
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
	err := s.listen(serving)
	stop()
	waiting.Wait()
	return err
}

// shutdownTimeout is how long requests in progress may take after the end of the process began.
const shutdownTimeout = time.Minute

// listen serves the handlers until ctx ends and the requests in progress are answered.
func (s *server) listen(ctx context.Context) error {
	config, err := s.serving.tls(ctx)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.serving.BindAddress)
	if err != nil {
		return fmt.Errorf("listen for requests to the webhook: %w", err)
	}
	requests := &http.Server{Handler: s.WebhookMux(), ReadHeaderTimeout: helloTimeout, IdleTimeout: idleTimeout,
		BaseContext: func(net.Listener) context.Context { return ctx }}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		ended <- requests.Shutdown(closing)
	}()
	s.started.Store(true)
	limited := netutil.LimitListener(listener, s.connections)
	if err := requests.Serve(tls.NewListener(limited, config)); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhook: %w", err)
	}
	return <-ended
}

// StartedChecker implements webhook.Server. StartedChecker opens no connection, so a client that uses all connections
// does not make the process unready.
func (s *server) StartedChecker() healthz.Checker {
	return func(*http.Request) error {
		if !s.started.Load() {
			return errors.New("the server of the webhook has not started yet")
		}
		return nil
	}
}
