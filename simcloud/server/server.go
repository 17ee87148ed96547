// Package server implements the HTTP API of the simulated cloud: authentication, fault rules and encoding.
//
// Customers call paths below /v1 with the token of their account. The operator of the simulation calls paths below
// /admin/v1 with the admin token. /healthz needs no token.
package server

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"k8s.io/utils/clock"

	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/cloud"
	"machinist.dev/machinist/simcloud/fault"
)

// maxRequestBytes limits the body of a request. The body may contain user data in base64.
const maxRequestBytes = 1 << 20

// Options configure a Server. The fields Cloud and Rules must be set.
type Options struct {
	Cloud *cloud.Cloud
	Rules *fault.Rules
	// AdminToken is the token for /admin/v1. If AdminToken is empty, all calls to /admin/v1 are refused.
	AdminToken string
	// Clock measures latencies. Default: the real clock.
	Clock clock.Clock
	// Log receives one line for each internal error. Default: slog's default logger.
	Log *slog.Logger
}

// Server is the HTTP handler of the simulated cloud.
type Server struct {
	cloud      *cloud.Cloud
	rules      *fault.Rules
	adminToken string
	clock      clock.Clock
	log        *slog.Logger
	statistics statistics
	mux        *http.ServeMux
	// stopping is closed when the server stops. Calls that wait for the latency of a fault then end immediately.
	stopping <-chan struct{}
}

// New returns a server. When the context ends, calls that wait for a fault's latency are answered with CodeUnavailable.
func New(ctx context.Context, o Options) *Server {
	s := &Server{
		cloud: o.Cloud, rules: o.Rules, adminToken: o.AdminToken, clock: o.Clock, log: o.Log,
		mux: http.NewServeMux(), stopping: ctx.Done(),
	}
	if s.clock == nil {
		s.clock = clock.RealClock{}
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	s.statistics.start = s.clock.Now()
	s.mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "ok\n") })
	s.routeCustomer()
	s.routeAdmin()
	s.mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		// Do not answer with CodeNotFound, because clients interpret it as the absence of an instance.
		s.fail(w, failf(simcloud.CodeInvalidParameter, "%s %q is not part of the API", r.Method, r.URL.Path))
	})
	return s
}

// ServeHTTP implements http.Handler.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxRequestBytes)
	s.mux.ServeHTTP(w, r)
}

func bearer(r *http.Request) string {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	if !ok {
		return ""
	}
	return token
}

func sameSecret(a, b string) bool {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:]) == 1
}

// decode decodes the body of a request and rejects unknown fields.
func decode(r *http.Request, into any) error {
	decoder := json.NewDecoder(r.Body)
	decoder.DisallowUnknownFields()
	err := decoder.Decode(into)
	if err == nil {
		if _, rest := decoder.Token(); rest != io.EOF {
			err = errors.New("there is more than one JSON value")
		}
	}
	if err != nil {
		return failf(simcloud.CodeInvalidParameter, "body: %v", err)
	}
	return nil
}

// succeed answers a call with its result. The answer begins with as many bytes of white space as the argument padding
// requires.
func (s *Server) succeed(w http.ResponseWriter, result any, padding int) {
	if result == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	s.write(w, http.StatusOK, result, padding)
}

func (s *Server) fail(w http.ResponseWriter, err error) {
	e, ok := errors.AsType[*simcloud.Error](err)
	if !ok {
		s.log.Error("call failed with an internal error", "error", err)
		e = &simcloud.Error{Code: simcloud.CodeInternalError, Message: err.Error()}
	}
	if e.RetryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(e.RetryAfter.Seconds()))))
	}
	if e.Code == simcloud.CodeUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	s.write(w, e.Code.HTTPStatus(), simcloud.ErrorBody{Code: e.Code, Message: e.Message,
		RetryAfter: simcloud.Duration(e.RetryAfter)}, 0)
}

// space is white space, which JSON allows before a value.
var space = bytes.Repeat([]byte{' '}, 64<<10)

func (s *Server) write(w http.ResponseWriter, status int, body any, padding int) {
	data, err := json.Marshal(body)
	if err != nil { // All types can be encoded.
		s.log.Error("cannot encode an answer", "error", err)
		status, data = http.StatusInternalServerError, []byte(`{"code":"InternalError"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	for padding > 0 {
		n, err := w.Write(space[:min(padding, len(space))])
		if err != nil {
			return // The caller closed the connection.
		}
		padding -= n
	}
	_, _ = w.Write(append(data, '\n')) // The caller may have closed the connection.
}

// wait returns after the duration d, even if the caller has given up. If the server stops earlier, it returns false.
func (s *Server) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := s.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-s.stopping:
		return false
	}
}

func failf(code simcloud.ErrorCode, format string, args ...any) error {
	return &simcloud.Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
