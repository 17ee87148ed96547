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
	// maxBody is the maximum size of a request. An object in etcd has at most 1.5 MiB, and an AdmissionReview of an update
	// contains two versions of the object.
	maxBody = 2*1536<<10 + 256<<10
	// maxBodies is the maximum total size of all requests in progress. Decoding a request takes about six times as much
	// memory as the request itself.
	maxBodies = 16 << 20
	// bodyStep is the unit in which memory for requests is reserved. Each request reserves at least one unit, so at most
	// maxBodies/bodyStep requests are in progress.
	bodyStep = 32 << 10
	// maxWork is the maximum number of requests that are validated at the same time. A request waits at most workWait
	// before its validation begins.
	maxWork, workWait = 32, time.Second
	// bodyTimeout is the time within which a client must send its request. answerTimeout is the time within which
	// the client must read the response. API servers wait for at most 5 seconds.
	bodyTimeout, answerTimeout = 5 * time.Second, 10 * time.Second
)

// limits limits the memory and the time that requests use. Any client that reaches the port can send requests.
// Without limits, such a client could use up the memory of the process.
type limits struct {
	bodies, work *semaphore.Weighted
	// The fields wait and arrival are workWait and bodyTimeout, except in tests.
	wait, arrival time.Duration
	// If the field verified is true, only clients with a verified certificate are served.
	verified bool
}

func newLimits(verified bool) *limits {
	return &limits{bodies: semaphore.NewWeighted(maxBodies), work: semaphore.NewWeighted(maxWork), wait: workWait,
		arrival: bodyTimeout, verified: verified}
}

// errBusy is the error for a request that exceeds the limits.
var errBusy = errors.New("too many admission requests at the same time: try again later")

// guard returns a handler that calls next for each request within the limits, and refuses all other requests. If a
// request is refused with status 429, the API server sends the request again within the timeout of the webhook.
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

// refuse sends the error response to a request that could not be read or exceeds the limits.
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

// countedBody is the body of a request. The body reserves memory for the bytes that have arrived, not for the
// announced size. Otherwise a client could reserve memory without sending any data.
type countedBody struct {
	from         io.Reader
	memory       *semaphore.Weighted
	size, locked int64
}

// read returns the whole body. The parameter announced is the size in the header of the request, or negative if the
// header has none.
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

// reserve reserves more memory until at least size bytes are reserved.
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
