package driver

import (
	"errors"
	"io"
	"net/http"
)

// maxAnswerBytes bounds what is read of one answer. The longest real ones, pages of virtual machines and of sizes,
// have a few megabytes; the SDK reads all of one into memory.
const maxAnswerBytes = 32 << 20

// errAnswerTooLong is what reading an answer ends with that is longer than maxAnswerBytes.
var errAnswerTooLong = errors.New("the answer is longer than 32 MiB")

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
		return int(b.left), errAnswerTooLong
	}
	b.left -= int64(n)
	return n, err
}
