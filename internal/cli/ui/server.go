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

// Options configures a Server.
type Options struct {
	// Source reads the cluster. It is required.
	Source Source
	// Now returns the current time of the local clock. The default is time.Now.
	Now func() time.Time
	// When a browser has used a link, Used is called with the next link. Used may be nil.
	Used func(link string)
}

// Server serves the fleet view.
type Server struct {
	options  Options
	hub      *hub
	access   *access
	listener net.Listener
	pages    *pages
	// planning is a semaphore with one slot, so that only one plan is computed at a time.
	planning chan struct{}
	// streams is a semaphore. Each page that receives updates occupies one slot.
	streams chan struct{}
	// ended is closed when the server shuts down, so that streams end too.
	ended chan struct{}
}

const (
	// maxStreams is the maximum number of pages that receive updates at the same time.
	maxStreams = 64
	// maxBody is the maximum size of a manifest for a plan, in bytes.
	maxBody = 1 << 20
	// shutdownGrace is the maximum time for which the server waits for requests in progress before it shuts down.
	shutdownGrace = 2 * time.Second
)

// Listen reads the fleet for the first time, and listens on a loopback address. The caller must then call Serve to
// answer requests.
func Listen(ctx context.Context, address string, o Options) (*Server, error) {
	if !Loopback(address) {
		return nil, fmt.Errorf("listen on %q: the address must be a loopback address with a port, such as 127.0.0.1:0", address)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Used == nil {
		o.Used = func(string) {}
	}
	pages, err := newPages()
	if err != nil {
		return nil, err
	}
	s := &Server{options: o, hub: newHub(o.Source, o.Now), pages: pages, planning: make(chan struct{}, 1),
		streams: make(chan struct{}, maxStreams), ended: make(chan struct{})}
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

// Link returns a link that opens the fleet view in a browser. Each link can be used only once.
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
		close(s.ended)
		grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
		defer cancel()
		if server.Shutdown(grace) != nil {
			_ = server.Close() // Abort the requests that take too long.
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
	return s.access.protect(mux, func() { s.options.Used(s.Link()) })
}
