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
	// persistPeriod is the time between two tries of a request that reaches nobody.
	persistPeriod = time.Second
	// reportTries is after how many tries it is logged. Most outages are known by then, but for one of this kind alone.
	reportTries = 60
	// drainLimit bounds what is read of an answer that is thrown away, so that its connection can be used again.
	drainLimit = 64 << 10
)

// persistent returns a client for informers. The reflector of client-go, which takes no backoff of ours, waits ever
// longer after each failure, in the end 30 to 60 seconds, and so it also waits after the outage, while other requests
// succeed again: decisions would be made from an old cache. This client does not report such failures to the reflector.
// It repeats the request every second until an API server answers, if only with a rejection, or the informer ends.
func persistent(client *http.Client, log logr.Logger) *http.Client {
	copied := *client
	if copied.Transport == nil {
		copied.Transport = http.DefaultTransport
	}
	copied.Transport = persistence{next: copied.Transport, log: log}
	return &copied
}

type persistence struct {
	next http.RoundTripper
	log  logr.Logger
}

// RoundTrip implements http.RoundTripper.
func (p persistence) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Method != http.MethodGet || request.Body != nil {
		return p.next.RoundTrip(request)
	}
	ctx := request.Context()
	var tick *time.Ticker
	for tries := 1; ; tries++ {
		response, err := p.next.RoundTrip(request)
		if ctx.Err() != nil || err == nil && !noOne(response) {
			return response, err
		}
		if err == nil {
			err = errors.New(response.Status)
			_, _ = io.CopyN(io.Discard, response.Body, drainLimit)
			_ = response.Body.Close()
		}
		if tick == nil {
			tick = time.NewTicker(persistPeriod)
			defer tick.Stop()
		}
		if tries == reportTries {
			p.log.Info("A watch reaches nobody, and is tried again until it does", "path", request.URL.Path, "cause",
				err.Error())
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// noOne reports whether an answer is that of something in between that does not reach the API server either, or of an
// API server that does not accept the credentials, which may be renewed (rule renewed-kubeconfig-used). An API server
// that is busy says when to come again, and client-go obeys.
func noOne(response *http.Response) bool {
	switch response.StatusCode {
	case http.StatusUnauthorized:
		return true
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return response.Header.Get("Retry-After") == ""
	}
	return false
}

// WrappedRoundTripper lets client-go find the transport behind this one.
func (p persistence) WrappedRoundTripper() http.RoundTripper { return p.next }
