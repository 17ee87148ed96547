package process

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	authenticationclient "k8s.io/client-go/kubernetes/typed/authentication/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

const (
	resultLifetime = time.Minute
	maxResults     = 256
	resultTimeout  = 10 * time.Second
	// unknownPerSecond and unknownAtOnce limit how often this process asks the cluster about new requests. Without this
	// limit, unauthorized clients could cause many requests to the API server.
	unknownPerSecond, unknownAtOnce = 2, 10
	// maxAllowed and allowedLifetime limit the allowed requests that are exempt from this rate limit.
	maxAllowed, allowedLifetime = 64, time.Hour
)

// metricsAuthorizer authorizes requests for metrics. The type authenticates a client by its bearer token, and asks
// the control cluster whether the client may read the path. The filter of controller-runtime does the same, but
// doubles the size of the binary.
type metricsAuthorizer struct {
	reviews authenticationclient.TokenReviewInterface
	rights  authorizationclient.SubjectAccessReviewInterface
	known   *cache.LRUExpireCache // HTTP status codes by question
	// allowedRequests contains the requests that the cluster has recently allowed. A rate limiter applies to the
	// checks of all other requests.
	allowedRequests *cache.LRUExpireCache
	unknown         *rate.Limiter
	clock           cache.Clock
}

const metricsPath = "/metrics"

// question identifies an access check: may the owner of a bearer token send a request? A question contains only a
// hash of the token.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

func filterMetrics(clock cache.Clock) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		reviews, err := authenticationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("create the client for token reviews: %w", err)
		}
		rights, err := authorizationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("create the client for access reviews: %w", err)
		}
		a := newAccess(reviews.TokenReviews(), rights.SubjectAccessReviews(), clock)
		return a.filter, nil
	}
}

func newAccess(reviews authenticationclient.TokenReviewInterface,
	rights authorizationclient.SubjectAccessReviewInterface, clock cache.Clock) *metricsAuthorizer {
	return &metricsAuthorizer{
		reviews: reviews, rights: rights, known: cache.NewLRUExpireCacheWithClock(maxResults, clock),
		allowedRequests: cache.NewLRUExpireCacheWithClock(maxAllowed, clock),
		unknown:         rate.NewLimiter(unknownPerSecond, unknownAtOnce), clock: clock,
	}
}

func (a *metricsAuthorizer) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := a.authorize(r)
		if err != nil {
			log.Error(err, "Cannot authorize a request for metrics")
			code = http.StatusInternalServerError
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// authorize returns the status 200, 401, 403 or 404, or 429 after too many unknown requests.
func (a *metricsAuthorizer) authorize(r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "bearer") {
		return http.StatusUnauthorized, nil
	}
	q := question{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
	if code, ok := a.known.Get(q); ok {
		return code.(int), nil
	}
	if r.URL.Path != metricsPath {
		return http.StatusNotFound, nil // Otherwise each path would be a new question.
	}
	if _, ok := a.allowedRequests.Get(q); !ok && !a.unknown.AllowN(a.clock.Now(), 1) {
		return http.StatusTooManyRequests, nil
	}
	ctx, cancel := context.WithTimeout(r.Context(), resultTimeout)
	defer cancel()
	code, err := a.ask(ctx, token, q)
	if err == nil {
		a.known.Add(q, code, resultLifetime)
	}
	switch {
	case err == nil && code == http.StatusOK:
		a.allowedRequests.Add(q, true, allowedLifetime)
	case err == nil:
		a.allowedRequests.Remove(q)
	}
	return code, err
}

func (a *metricsAuthorizer) ask(ctx context.Context, token string, q question) (int, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := a.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("create a TokenReview: %w", err)
	}
	if !review.Status.Authenticated {
		return http.StatusUnauthorized, nil
	}
	user := review.Status.User
	extra := map[string]authorizationv1.ExtraValue{}
	for key, values := range user.Extra {
		extra[key] = authorizationv1.ExtraValue(values)
	}
	right := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User: user.Username, UID: user.UID, Groups: user.Groups, Extra: extra,
		NonResourceAttributes: &authorizationv1.NonResourceAttributes{Verb: q.verb, Path: q.path},
	}}
	if right, err = a.rights.Create(ctx, right, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create a SubjectAccessReview for user %s: %w", user.Username, err)
	}
	if !right.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
