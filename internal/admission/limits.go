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
	// maxBody is the limit of the size of a request. An object in etcd has at most 1.5 MiB, and the review of an update
	// contains two objects.
	maxBody = 2*1536<<10 + 256<<10
	// maxBodies is the limit of the size of all requests in progress. To decode a request takes about six times its size.
	maxBodies = 16 << 20
	// bodyStep is the size in which memory for bodies is reserved. Each request reserves it at least once, so at most
	// maxBodies/bodyStep requests are in progress.
	bodyStep = 32 << 10
	// maxWork is how many requests are validated at the same time, and workWait how long a request waits for its turn.
	maxWork, workWait = 32, time.Second
	// bodyTimeout is the time within which a request must have arrived, and answerTimeout the time within which its answer
	// must have been read. API servers wait for at most 5 seconds.
	bodyTimeout, answerTimeout = 5 * time.Second, 10 * time.Second
)

// limits bounds what requests cost. Any client that reaches the port can send requests. Without limits, it could use up
// the memory of the process.
type limits struct {
	bodies, work *semaphore.Weighted
	// wait is workWait, and arrival is bodyTimeout, except in tests.
	wait, arrival time.Duration
	// verified means that only clients with a verified certificate are served.
	verified bool
}

func newLimits(verified bool) *limits {
	return &limits{bodies: semaphore.NewWeighted(maxBodies), work: semaphore.NewWeighted(maxWork), wait: workWait,
		arrival: bodyTimeout, verified: verified}
}

// errBusy is the error for a request beyond the limits.
var errBusy = errors.New("too many admission requests at the same time: try again later")

// guard passes requests within the limits to next. API servers repeat a request that is refused with 429, within the
// timeout of the webhook.
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

// refuse answers a request that could not be read or is beyond the limits.
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

// errTooLarge is the error for a request with more than maxBody bytes.
var errTooLarge = fmt.Errorf("the request has more than %d bytes", maxBody)

// countedBody is the body of a request. It reserves memory for what has arrived, not for what was announced, so that a
// client cannot reserve memory without sending anything.
type countedBody struct {
	from         io.Reader
	memory       *semaphore.Weighted
	size, locked int64
}

// read returns the whole body. announced is its size by the header of the request, negative if it is not known.
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

// reserve makes sure that memory for a size is reserved.
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
