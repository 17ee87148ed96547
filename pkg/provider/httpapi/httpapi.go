// Package httpapi has what drivers need that call a cloud's HTTP API: one pool of connections for many accounts,
// answers whose length is bounded, and the time that an answer asks to wait.
package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// MaxAnswerBytes bounds each answer. The longest real ones, pages of instances and of sizes, have a few megabytes; SDKs
// read all of an answer into memory.
const MaxAnswerBytes = 32 << 20

// ErrAnswerTooLong ends the reading of an answer that is longer than MaxAnswerBytes. The call may have taken effect.
var ErrAnswerTooLong = errors.New("the answer is longer than 32 MiB")

// Client returns a client for all accounts of a driver: credentials go with the requests. It follows no redirects,
// because a token must not go where an answer points. Its answers are bounded by MaxAnswerBytes. A nil transport is one
// like Go's that keeps 256 connections for each host.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = Transport()
	}
	return &http.Client{
		Transport:     bounded{transport, MaxAnswerBytes},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Transport returns one like Go's own that keeps 256 connections for each host, a minute each.
func Transport() *http.Transport {
	own := http.DefaultTransport.(*http.Transport).Clone()
	own.MaxIdleConnsPerHost, own.IdleConnTimeout = 256, time.Minute
	return own
}

// bounded is a transport whose answers have an end.
type bounded struct {
	http.RoundTripper
	most int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if response != nil && response.Body != nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: b.most}
	}
	return response, err
}

// boundedBody fails, and does not end, after so many bytes: a list that is cut off must not look complete.
type boundedBody struct {
	io.ReadCloser
	left int64
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	if int64(len(p)) > b.left+1 {
		p = p[:b.left+1] // One more tells an answer that ends there from one that goes on.
	}
	n, err := b.ReadCloser.Read(p)
	if int64(n) > b.left {
		return int(b.left), ErrAnswerTooLong
	}
	b.left -= int64(n)
	return n, err
}

// maxRetryAfter bounds what an answer may ask for.
const maxRetryAfter = 24 * time.Hour

// RetryAfter returns how long an answer with these headers asks to wait: seconds or a date. It is zero where the header
// Retry-After is absent or unreadable, and a day at most.
func RetryAfter(h http.Header) time.Duration {
	header := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(header); err == nil {
		return time.Duration(max(0, min(seconds, int(maxRetryAfter.Seconds())))) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		// By the clock that it was written with, if that is known: ours may be minutes off.
		if now, err := http.ParseTime(h.Get("Date")); err == nil {
			return min(max(0, at.Sub(now)), maxRetryAfter)
		}
		return min(max(0, time.Until(at)), maxRetryAfter)
	}
	return 0
}
