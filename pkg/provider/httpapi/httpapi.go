// Package httpapi contains helpers for drivers that call the HTTP API of a cloud. The package contains a client for
// many accounts, a check of the links between the pages of a list, and a parser for Retry-After. The client limits
// the length of responses and lists, and the addresses to which it connects.
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

// MaxAnswerBytes is the maximum length of a response. SDKs read a whole response into memory. The longest responses of
// real clouds are a few megabytes long.
const MaxAnswerBytes = 32 << 20

// ErrAnswerTooLong is returned by reads of a response that is longer than MaxAnswerBytes. The call may have taken
// effect.
var ErrAnswerTooLong = errors.New("response is longer than 32 MiB")

const (
	// MaxListPages is the maximum number of pages of one list. Pages usually have hundreds of entries.
	MaxListPages = 1000
	// MaxListBytes is the maximum length of all pages of one list together. A driver keeps these pages in memory until
	// the list is complete.
	MaxListBytes = 128 << 20
)

// ErrListTooLong is returned for a list that exceeds MaxListPages or MaxListBytes.
var ErrListTooLong = errors.New("list has more than 1000 pages or 128 MiB")

// TooLong returns ErrAnswerTooLong or ErrListTooLong if err wraps one of them, and otherwise nil.
func TooLong(err error) error {
	for _, limit := range []error{ErrAnswerTooLong, ErrListTooLong} {
		if errors.Is(err, limit) {
			return limit
		}
	}
	return nil
}

// Client returns a client for all accounts of a driver. Each request carries its own credentials. The client does not
// follow redirects, because a response must not decide where a token is sent. Responses are limited to MaxAnswerBytes.
// The function List sets the limits for the pages of one list. A nil transport means Transport with the zero value of
// endpoints.Rules.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = Transport(endpoints.Rules{})
	}
	return &http.Client{
		Transport:     bounded{transport, MaxAnswerBytes},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

type list struct{ pages, bytes atomic.Int64 }

type listKey struct{}

// List returns a context for all requests of one list. With this context, a client from Client fails with
// ErrListTooLong after MaxListPages requests, or when the responses together exceed MaxListBytes.
func List(ctx context.Context) context.Context {
	l := &list{}
	l.pages.Store(MaxListPages)
	l.bytes.Store(MaxListBytes)
	return context.WithValue(ctx, listKey{}, l)
}

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

// boundedBody is a response body that returns ErrAnswerTooLong after the limit. If boundedBody returned io.EOF
// instead, an incomplete list would look complete.
type boundedBody struct {
	io.ReadCloser
	left int64
	list *list // nil if the response is not a page of a list
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		// Allow one byte more than the limit, to detect whether the response is longer than the limit.
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

const maxRetryAfter = 24 * time.Hour

// RetryAfter returns the waiting time that the headers of a response request, at most one day. The header Retry-After
// contains seconds or a date. RetryAfter returns zero if the header is missing or invalid.
func RetryAfter(h http.Header) time.Duration {
	header := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, int(maxRetryAfter.Seconds())))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		// Prefer the clock of the server, because the local clock may be minutes off.
		if now, err := http.ParseTime(h.Get("Date")); err == nil {
			return min(max(0, at.Sub(now)), maxRetryAfter)
		}
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}
