package process

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
)

const (
	// informerRetryPeriod is the time between two attempts of a request that does not reach an API server.
	informerRetryPeriod = time.Second
	// attemptsUntilReport is the number of attempts after which the request is logged. By then, most outages have already
	// been reported elsewhere, but not an outage that affects only this kind.
	attemptsUntilReport = 60
	// drainLimit is how many bytes of an unused answer are read, so that its connection can be reused.
	drainLimit = 64 << 10
)

// retryUntilAnswered returns a client for informers that repeats a request every second until an API server answers,
// even with a rejection, or until the informer ends. The reflector of client-go, whose backoff cannot be configured,
// finally waits 30 to 60 seconds between two attempts. It would still wait after the outage, when other requests
// succeed again, and controllers would decide from an outdated cache. So the reflector never sees such failures.
func retryUntilAnswered(client *http.Client, log logr.Logger) *http.Client {
	copied := *client
	if copied.Transport == nil {
		copied.Transport = http.DefaultTransport
	}
	copied.Transport = retryTransport{next: copied.Transport, log: log}
	return &copied
}

type retryTransport struct {
	next http.RoundTripper
	log  logr.Logger
}

// RoundTrip implements http.RoundTripper.
func (t retryTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet || request.Body != nil {
		return t.next.RoundTrip(request)
	}
	ctx := request.Context()
	var tick *time.Ticker
	for attempt := 1; ; attempt++ {
		response, err := t.next.RoundTrip(request)
		if ctx.Err() != nil || err == nil && !outOfReach(response) {
			return response, err
		}
		if err == nil {
			err = errors.New(response.Status)
			_, _ = io.CopyN(io.Discard, response.Body, drainLimit)
			_ = response.Body.Close()
		}
		if tick == nil {
			tick = time.NewTicker(informerRetryPeriod)
			defer tick.Stop()
		}
		if attempt == attemptsUntilReport {
			t.log.Info("The request of an informer does not reach the API server and is repeated every second", "path",
				request.URL.Path, "cause", err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// outOfReach reports whether an answer came from a proxy that does not reach the API server either, or rejects the
// credentials, which may be renewed (rule renewed-kubeconfig-used). A busy API server sets Retry-After, which client-go
// obeys.
func outOfReach(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return response.Header.Get("Retry-After") == ""
	}
	return false
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (t retryTransport) WrappedRoundTripper() http.RoundTripper { return t.next }
