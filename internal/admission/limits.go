package admission

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// maxBody is the maximum size of a request in bytes. An object in etcd has at most 1.5 MiB. The AdmissionReview of
	// an update contains two versions of the object.
	maxBody = 2*1536<<10 + 256<<10
	// maxBodies is the maximum total size of all requests in progress. Decoding a request needs about six times as much
	// memory as the request itself.
	maxBodies = 16 << 20
	// bodyStep is the unit in which memory is reserved. At most maxBodies/bodyStep requests are in progress.
	bodyStep = 32 << 10
	// maxWork limits the requests that are validated at the same time. Further requests wait for at most workWait.
	maxWork, workWait = 32, time.Second
	// bodyTimeout limits how long a client sends its request. answerTimeout limits how long a client reads the
	// response. API servers wait for at most 5 seconds.
	bodyTimeout, answerTimeout = 5 * time.Second, 10 * time.Second
	// maxConnections limits the connections. An API server keeps few connections, because HTTP/2 sends many requests
	// over one connection. Further connections wait until another connection ends.
	maxConnections = 1024
	// helloTimeout limits the TLS handshake and the header of a request. idleTimeout is the time after which an unused
	// connection is closed.
	helloTimeout, idleTimeout = 5 * time.Second, 30 * time.Second
)

// limits restricts the memory and time of requests, because any client that reaches the port can send requests.
type limits struct {
	bodies, work *semaphore.Weighted
	// These limits are workWait and bodyTimeout, except in tests.
	wait, arrival time.Duration
	verified      bool
}

func newLimits(verified bool) *limits {
	return &limits{bodies: semaphore.NewWeighted(maxBodies), work: semaphore.NewWeighted(maxWork), wait: workWait,
		arrival: bodyTimeout, verified: verified}
}

var errBusy = errors.New("too many admission requests at the same time: try again later")

// guard returns a handler that refuses requests beyond the limits. The API server retries a request with status 429
// within the timeout of the webhook.
func (l *limits) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if l.verified && (r.TLS == nil || len(r.TLS.VerifiedChains) == 0) {
			http.Error(w, "a client certificate of an authority in --webhook-client-ca-file is required",
				http.StatusUnauthorized)
			return
		}
		control, now := http.NewResponseController(w), time.Now()
		if err := errors.Join(control.SetReadDeadline(now.Add(l.arrival)),
			control.SetWriteDeadline(now.Add(answerTimeout))); err != nil {
			http.Error(w, "limit the time of the request: "+err.Error(), http.StatusInternalServerError)
			return
		}
		body := &countedBody{from: r.Body, memory: l.bodies}
		defer body.release()
		text, err := body.read(r.ContentLength)
		if err == nil {
			waiting, cancel := context.WithTimeout(r.Context(), l.wait)
			err = l.work.Acquire(waiting, 1)
			cancel()
			if err == nil {
				defer l.work.Release(1)
				r.Body = io.NopCloser(bytes.NewReader(text))
				next.ServeHTTP(w, r)
				return
			}
			err = errBusy
		}
		refuse(w, err)
	})
}

func refuse(w http.ResponseWriter, err error) {
	code := http.StatusBadRequest
	switch {
	case errors.Is(err, errBusy):
		code = http.StatusTooManyRequests
		w.Header().Set("Retry-After", "1")
	case errors.Is(err, errTooLarge):
		code = http.StatusRequestEntityTooLarge
	case errors.Is(err, os.ErrDeadlineExceeded):
		code = http.StatusRequestTimeout
	}
	http.Error(w, err.Error(), code)
}

var errTooLarge = fmt.Errorf("the request has more than %d bytes", maxBody)

// countedBody is the body of a request. countedBody reserves memory only for bytes that have arrived. A client that
// announces a large size but sends nothing reserves no memory.
type countedBody struct {
	from         io.Reader
	memory       *semaphore.Weighted
	size, locked int64
}

// read returns the whole body. If the request has no Content-Length header, the announced size is negative.
func (b *countedBody) read(announced int64) ([]byte, error) {
	if announced > maxBody {
		return nil, errTooLarge
	}
	if err := b.reserve(1); err != nil {
		return nil, err
	}
	return io.ReadAll(b)
}

// Read implements io.Reader.
func (b *countedBody) Read(to []byte) (int, error) {
	n, err := b.from.Read(to)
	b.size += int64(n)
	if failed := b.reserve(b.size); failed != nil {
		return n, failed
	}
	return n, err
}

func (b *countedBody) reserve(size int64) error {
	if size > maxBody {
		return errTooLarge
	}
	for b.locked < size {
		if !b.memory.TryAcquire(bodyStep) {
			return errBusy
		}
		b.locked += bodyStep
	}
	return nil
}

func (b *countedBody) release() { b.memory.Release(b.locked) }
