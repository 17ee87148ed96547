package process

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-logr/logr"
)

// answers is a transport that returns one status after the other, and repeats the last one. The status 0 means that no
// server is reached.
type answers struct {
	status []int
	header http.Header
	asked  atomic.Int32
}

func (a *answers) RoundTrip(*http.Request) (*http.Response, error) {
	i := min(int(a.asked.Add(1)), len(a.status)) - 1
	if a.status[i] == 0 {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	for key, values := range a.header {
		w.Header()[key] = values
	}
	w.WriteHeader(a.status[i])
	return w.Result(), nil
}

// Rule: outage-ends-with-caches.
func TestARequestOfAnInformerIsRepeatedUntilAnAPIServerAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		method   string
		server   *answers
		want     int
		requests int
	}{
		"an answer":                     {http.MethodGet, &answers{status: []int{200}}, 200, 1},
		"no connection, then an answer": {http.MethodGet, &answers{status: []int{0, 200}}, 200, 2},
		"a proxy without an API server": {http.MethodGet, &answers{status: []int{503, 502, 200}}, 200, 3},
		"a rejection":                   {http.MethodGet, &answers{status: []int{0, 403}}, 403, 2},
		"an error of the server":        {http.MethodGet, &answers{status: []int{500}}, 500, 1},
		"a version that is gone":        {http.MethodGet, &answers{status: []int{410}}, 410, 1},
		"a server that is busy": {http.MethodGet, &answers{status: []int{503}, header: http.Header{"Retry-After": {"1"}}},
			503, 1},
		"a write": {http.MethodPost, &answers{status: []int{0}}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := retryUntilAnswered(&http.Client{Transport: test.server}, logr.Discard())
			request, err := http.NewRequestWithContext(t.Context(), test.method, "http://nowhere/", nil)
			if err != nil {
				t.Fatal(err)
			}
			got := 0
			response, err := c.Do(request)
			if err == nil {
				got = response.StatusCode
				_, _ = io.Copy(io.Discard, response.Body)
				_ = response.Body.Close()
			}
			if asked := int(test.server.asked.Load()); got != test.want || asked != test.requests {
				t.Errorf("status %d (%v) after %d requests, want %d after %d", got, err, asked, test.want, test.requests)
			}
		})
	}
}

// Rule: outage-ends-with-caches.
func TestAnUnansweredRequestEndsWithItsInformer(t *testing.T) {
	t.Parallel()
	unreachable := &answers{status: []int{0}}
	c := retryUntilAnswered(&http.Client{Transport: unreachable}, logr.Discard())
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://nowhere/", nil)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() {
		_, err := c.Do(request)
		ended <- err
	}()
	eventually(t, func() error {
		if unreachable.asked.Load() < 2 {
			return errors.New("the request was not repeated")
		}
		return nil
	})
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "refused") {
		t.Errorf("the request ended with %v, want context.Canceled", err)
	}
}
