package process

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
)

// probes serves /healthz and /readyz as soon as Run is called. The server of the manager would not run while the
// process waits for the control cluster. Unauthenticated clients can read the answers, so the answers contain no raw
// errors.
type probes struct {
	log      logr.Logger
	listener net.Listener // nil if disabled

	mu     sync.Mutex
	health map[string]healthz.Checker
	ready  map[string]healthz.Checker
	// notes are texts in the answer of /readyz that do not influence its status.
	notes map[string]func(*http.Request) string
}

func newProbes(log logr.Logger) *probes {
	return &probes{log: log, health: map[string]healthz.Checker{}, ready: map[string]healthz.Checker{},
		notes: map[string]func(*http.Request) string{}}
}

// notReady is the error text of /readyz if the process is not ready. Unauthenticated clients may see this text.
type notReady string

func (n notReady) Error() string { return string(n) }

func (p *probes) add(to map[string]healthz.Checker, name string, check healthz.Checker) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if to[name] != nil {
		return fmt.Errorf("probe %q already exists", name)
	}
	to[name] = check
	return nil
}

func (p *probes) note(name string, text func(*http.Request) string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notes[name] = text
}

// listen binds the address. An invalid address is reported before anything else happens.
func (p *probes) listen(address string) error {
	if isDisabled(address) {
		return nil
	}
	var err error
	if p.listener, err = net.Listen("tcp", address); err != nil {
		return fmt.Errorf("--health-probe-bind-address=%s: %w", address, err)
	}
	return nil
}

func (p *probes) serve(ctx context.Context) error {
	if p.listener == nil {
		return nil
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, p.health, nil) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) { p.answer(w, r, p.ready, p.notes) })
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve probes: %w", err)
	}
	return nil
}

func (p *probes) answer(w http.ResponseWriter, r *http.Request, checks map[string]healthz.Checker,
	notes map[string]func(*http.Request) string) {
	p.mu.Lock()
	checks, notes = maps.Clone(checks), maps.Clone(notes)
	p.mu.Unlock()
	var text strings.Builder
	code := http.StatusOK
	for _, name := range slices.Sorted(maps.Keys(checks)) {
		err := checks[name](r)
		if err == nil {
			fmt.Fprintf(&text, "[+]%s ok\n", name)
			continue
		}
		code = http.StatusServiceUnavailable
		var shown notReady
		if !errors.As(err, &shown) {
			shown = "failed"
		}
		p.log.V(1).Info("Probe failed", "probe", name, "cause", err.Error())
		fmt.Fprintf(&text, "[-]%s: %s\n", name, string(shown))
	}
	for _, name := range slices.Sorted(maps.Keys(notes)) {
		fmt.Fprintf(&text, "[ ]%s: %s\n", name, notes[name](r))
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text.String()))
}

// pingTimeout is how long one ping may take. The default timeout of a kubelet's probe is longer.
const pingTimeout = 800 * time.Millisecond

// pingLifetime is how long the result of a ping is reused. Unauthenticated clients can send probes, so a probe must not
// always cause a request to an API server.
const pingLifetime = time.Second

// cachedPing stores whether an API server answered the last ping. Concurrent callers share one request.
type cachedPing struct {
	mu   sync.Mutex
	at   time.Time
	err  error
	ping func(ctx context.Context) error
}

func (p *cachedPing) reachable(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.at.IsZero() && time.Since(p.at) < pingLifetime {
		return p.err
	}
	// Other callers share the result, so the end of one caller's context must not cancel the request.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), pingTimeout)
	defer cancel()
	p.err = p.ping(ctx)
	p.at = time.Now()
	return p.err
}

// AddHealthzCheck implements manager.Manager.
func (m ownManager) AddHealthzCheck(name string, check healthz.Checker) error {
	return m.probes.add(m.probes.health, name, check)
}

// AddReadyzCheck implements manager.Manager.
func (m ownManager) AddReadyzCheck(name string, check healthz.Checker) error {
	return m.probes.add(m.probes.ready, name, check)
}
