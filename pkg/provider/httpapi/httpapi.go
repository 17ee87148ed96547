// Package httpapi contains helpers for drivers that call the HTTP API of a cloud. They are a client with one connection
// pool for many accounts and a limit on the length of responses, and a parser for Retry-After.
package httpapi

import (
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
)

// MaxAnswerBytes is the maximum length of a response. SDKs read a whole response into memory. The longest real
// responses, pages of instances and of sizes, have a few megabytes.
const MaxAnswerBytes = 32 << 20

// ErrAnswerTooLong is the error of reading a response that is longer than MaxAnswerBytes. The call may have taken
// effect.
var ErrAnswerTooLong = errors.New("response is longer than 32 MiB")

// Client returns a client for all accounts of a driver; each request carries its own credentials. The client does not
// follow redirects, because a response must not decide where a token is sent. Responses are limited to MaxAnswerBytes.
// A nil transport means the result of Transport.
func Client(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = Transport()
	}
	return &http.Client{
		Transport:     bounded{transport, MaxAnswerBytes},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Transport returns a copy of http.DefaultTransport that keeps up to 256 idle connections per host, each for one
// minute.
func Transport() *http.Transport {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost, transport.IdleConnTimeout = 256, time.Minute
	return transport
}

// bounded is a transport that limits the length of responses.
type bounded struct {
	http.RoundTripper
	limit int64
}

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if response != nil && response.Body != nil {
		response.Body = &boundedBody{ReadCloser: response.Body, left: b.limit}
	}
	return response, err
}

// boundedBody fails with ErrAnswerTooLong after the limit. It does not return io.EOF, because a list that is cut off
// must not look complete.
type boundedBody struct {
	io.ReadCloser
	left int64
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
