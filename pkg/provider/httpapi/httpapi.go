// Package httpapi contains helpers for drivers that call the HTTP API of a cloud: a client with one connection pool for
// many accounts, a check of links to the next page of a list, and a parser for Retry-After. The client limits the
// length of responses and lists, and the addresses to which it connects.
package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"machinist.dev/machinist/pkg/provider/endpoints"
)

// MaxAnswerBytes is the maximum length of a response. SDKs read a whole response into memory. The longest real
// responses, pages of instances and of sizes, have a few megabytes.
const MaxAnswerBytes = 32 << 20

// ErrAnswerTooLong is the error of reading a response that is longer than MaxAnswerBytes. The call may have taken
// effect.
var ErrAnswerTooLong = errors.New("response is longer than 32 MiB")

const (
	// MaxListPages is the maximum number of pages of one list. Pages usually have hundreds of entries.
	MaxListPages = 1000
	// MaxListBytes is the maximum length of all pages of one list together. Drivers keep what they read until the list
	// ends.
	MaxListBytes = 128 << 20
)

// ErrListTooLong is the error of a list with more than MaxListPages or MaxListBytes.
var ErrListTooLong = errors.New("list has more than 1000 pages or 128 MiB")

// TooLong returns ErrAnswerTooLong or ErrListTooLong if err wraps one of them, otherwise nil.
func TooLong(err error) error {
	for _, limit := range []error{ErrAnswerTooLong, ErrListTooLong} {
		if errors.Is(err, limit) {
			return limit
		}
	}
	return nil
}

// Client returns a client for all accounts of a driver; each request carries its own credentials. The client does not
// follow redirects, because a response must not decide where a token is sent. Responses are limited to MaxAnswerBytes,
// and lists as List describes. A nil transport means the result of Transport without exceptions.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = Transport(endpoints.Rules{})
	}
	return &http.Client{
		Transport:     bounded{transport, MaxAnswerBytes},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// list counts what may still be read of a list.
type list struct{ pages, bytes atomic.Int64 }

type listKey struct{}

// List returns a context for all requests of one list. With it, a client from Client fails with ErrListTooLong after
// MaxListPages requests, or when their responses have more than MaxListBytes.
func List(ctx context.Context) context.Context {
	l := &list{}
	l.pages.Store(MaxListPages)
	l.bytes.Store(MaxListBytes)
	return context.WithValue(ctx, listKey{}, l)
}

// bounded is a transport that limits the length of responses and lists.
type bounded struct {
	http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	l, _ := r.Context().Value(listKey{}).(*list)
	if l != nil && l.pages.Add(-1) < 0 {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, ErrListTooLong
	}
	response, err := b.RoundTripper.RoundTrip(r)
	if response != nil && response.Body != nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: b.limit, list: l}
	}
	return response, err
}

// boundedBody fails with ErrAnswerTooLong after the limit. It does not return io.EOF, because a list that is cut off
// must not look complete.
type boundedBody struct {
	io.ReadCloser
	left int64
	list *list // nil if the response is not a page of a list
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		// Read one more byte, to distinguish a response that ends at the limit from a longer one.
		p = p[:b.left+1]
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		return int(b.left), ErrAnswerTooLong
	}
	b.left -= int64(n)
	if b.list != nil && b.list.bytes.Add(-int64(n)) < 0 {
		return 0, ErrListTooLong
	}
	return n, err
}

// maxRetryAfter limits the wait that a response can request.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns how long a response with these headers asks to wait, at most one day. The header Retry-After
// contains seconds or a date. RetryAfter returns zero if the header is missing or invalid.
func RetryAfter(h http.Header) time.Duration {
	header := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, int(maxRetryAfter.Seconds())))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		// Use the clock of the server, if the response contains its time: the local clock may be minutes off.
		if now, err := http.ParseTime(h.Get("Date")); err == nil {
			return min(max(0, at.Sub(now)), maxRetryAfter)
		}
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}
