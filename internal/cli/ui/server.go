package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Options configure a Server.
type Options struct {
	// Source reads the cluster. The field is required.
	Source Source
	// Now returns the local time. The default is time.Now.
	Now func() time.Time
	// OnLinkUsed is a callback, and may be nil. After a browser has opened the link, the server passes a new link to
	// this callback. The new link replaces the old link.
	OnLinkUsed func(link string)
}

// Server serves the fleet view.
type Server struct {
	options  Options
	hub      *hub
	access   *accessChecker
	listener net.Listener
	pages    *pages
	// planning is a semaphore: the server computes only one plan at a time.
	planning chan struct{}
	// streams is a semaphore for pages that receive updates.
	streams chan struct{}
	// shutdown is closed at shutdown, so that streams end too.
	shutdown chan struct{}
}

const (
	maxStreams = 64
	// maxBody is the maximum size of a manifest in bytes.
	maxBody = 1 << 20
	// shutdownGrace is how long a shutdown waits for requests in progress.
	shutdownGrace = 2 * time.Second
)

// Listen reads the fleet for the first time, and listens on a loopback address. Call Serve to answer requests.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	if !Loopback(address) {
		return nil, fmt.Errorf("listen on %q: the address must be a loopback address with a port, such as 127.0.0.1:0", address)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.OnLinkUsed == nil {
		o.OnLinkUsed = func(string) {}
	}
	pages, err := newPages()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, hub: newHub(o.Source, o.Now), pages: pages, planning: make(chan struct{}, 1),
		streams: make(chan struct{}, maxStreams), shutdown: make(chan struct{})}
	if err := s.hub.read(ctx, false); err != nil {
		return nil, err
	}
	if s.listener, err = net.Listen("tcp", address); err != nil {
		return nil, err
	}
	if tcp, ok := s.listener.Addr().(*net.TCPAddr); !ok || !tcp.IP.IsLoopback() {
		s.listener.Close()
		return nil, fmt.Errorf("listen on %q: it resolves to %s, which is not a loopback address", address, s.listener.Addr())
	}
	s.access = newAccess(s.listener.Addr())
	return s, nil
}

// Link returns a link for a browser. Each link works only once.
func (s *Server) Link() string { return s.link(s.access.newToken()) }

func (s *Server) link(token string) string {
	at := url.URL{Scheme: "http", Host: s.listener.Addr().String(), Path: "/",
		RawQuery: url.Values{tokenParameter: {token}}.Encode()}
	return at.String()
}

// Serve answers requests until ctx ends.
func (s *Server) Serve(ctx context.Context) error {
	server := &http.Server{Handler: s.Handler(), ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10}
	reading, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.hub.run(reading)
	}()
	served := make(chan error, 1)
	go func() { served <- server.Serve(s.listener) }()
	var err error
	select {
	case err = <-served:
	case <-ctx.Done():
		close(s.shutdown)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close()
		}
	}
	stop()
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Handler returns the HTTP handler of the server.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	for pattern, makePage := range map[string]func(*request) (*page, error){
		"/{$}": overviewPage, "/machines": machinesPage, "/machines/{namespace}/{name}": machinePage,
		"/deployments/{namespace}/{name}": deploymentPage, "/zones": zonesPage, "/ownership": ownershipPage,
		"/failures": failuresPage, "/orphans": orphansPage, "/plan": planPage,
		"/": func(*request) (*page, error) { return nil, notFound("This page does not exist.") },
	} {
		mux.HandleFunc("GET "+pattern, func(w http.ResponseWriter, r *http.Request) { s.answer(w, r, makePage) })
	}
	mux.HandleFunc("POST /plan", func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		s.answer(w, r, planPage)
	})
	mux.HandleFunc("GET /events", s.stream)
	mux.HandleFunc("GET /assets/{name}", s.asset)
	return s.access.protect(mux, func() { s.options.OnLinkUsed(s.Link()) })
}
