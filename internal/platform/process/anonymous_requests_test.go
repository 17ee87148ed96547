package process

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// Any client that reaches the port can send probes.
//
// Rule: anonymous-requests-limited.
func TestManyProbesCostOneRequest(t *testing.T) {
	var requests atomic.Int64
	p := &cachedPing{ping: func(context.Context) error { requests.Add(1); return errors.New("away") }}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if p.reachable(gone) == nil {
				t.Error("reachable() = nil for an unreachable cluster")
			}
		})
	}
	all.Wait()
	if n := requests.Load(); n != 1 {
		t.Errorf("%d requests", n)
	}
	p.at = time.Now().Add(-pingLifetime)
	_ = p.reachable(t.Context())
	if n := requests.Load(); n != 2 {
		t.Errorf("an expired result was reused: %d requests", n)
	}
}

type reviews struct {
	authenticationclient.TokenReviewInterface
	asked int
}

func (r *reviews) Create(_ context.Context, review *authenticationv1.TokenReview,
	_ metav1.CreateOptions) (*authenticationv1.TokenReview, error) {
	r.asked++
	review.Status.Authenticated = review.Spec.Token == "good"
	return review, nil
}

type rights struct {
	authorizationclient.SubjectAccessReviewInterface
}

func (rights) Create(_ context.Context, review *authorizationv1.SubjectAccessReview,
	_ metav1.CreateOptions) (*authorizationv1.SubjectAccessReview, error) {
	review.Status.Allowed = true
	return review, nil
}

// A client without rights can cause only a few requests to the API server, with any tokens and paths. Clients that were
// allowed before can still read the metrics.
//
// Rule: anonymous-requests-limited.
func TestUnauthorizedClientsCauseFewRequests(t *testing.T) {
	asked, clock := &reviews{}, clocktesting.NewFakeClock(time.Now())
	handler, err := newAccess(asked, rights{}, clock).filter(logr.Discard(),
		http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	if err != nil {
		t.Fatal(err)
	}
	get := func(token, path string) int {
		r, w := httptest.NewRequest(http.MethodGet, path, nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+token)
		handler.ServeHTTP(w, r)
		return w.Code
	}
	if code := get("good", "/metrics"); code != http.StatusOK {
		t.Fatalf("status %d", code)
	}
	refused := 0
	for i := range 100 {
		if get(strconv.Itoa(i), "/metrics") == http.StatusTooManyRequests {
			refused++
		}
		get("good", "/metrics/"+strconv.Itoa(i))
	}
	if asked.asked > unknownAtOnce || refused < 90 {
		t.Errorf("%d requests to the API server, %d clients refused", asked.asked, refused)
	}
	clock.Step(2 * resultLifetime)
	for range 100 {
		get("x", "/metrics")
		get(time.Now().String(), "/metrics")
	}
	if code := get("good", "/metrics"); code != http.StatusOK {
		t.Errorf("a client that was allowed before got the status %d", code)
	}
}
