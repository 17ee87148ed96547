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
	// resultLifetime is how long it is remembered whether somebody may read metrics.
	resultLifetime = time.Minute
	// results is how many are remembered at most.
	results = 256
	// resultTimeout is how long the cluster may take to answer.
	resultTimeout = 10 * time.Second
	// strangersPerSecond is how often the cluster is asked about tokens that were not let in before, and strangersAtOnce
	// how often at once: nobody without a right can have this process send more.
	strangersPerSecond, strangersAtOnce = 2, 10
	// trusted is how many of those who were let in are asked about without such a limit, and trustLife for how long.
	trusted, trustLife = 64, time.Hour
)

// access lets those read metrics who the control cluster says may: those that it knows by their bearer token, and
// lets get the path. controller-runtime's filter does the same by the libraries of the API server, which double the
// size of a process.
type access struct {
	reviews authenticationclient.TokenReviewInterface
	rights  authorizationclient.SubjectAccessReviewInterface
	known   *cache.LRUExpireCache // of HTTP status codes, by question
	// letIn has the questions that were answered with yes lately, and strangers limits all others.
	letIn     *cache.LRUExpireCache
	strangers *rate.Limiter
	clock     cache.Clock
}

// metricsPath is the one path that is served.
const metricsPath = "/metrics"

// question is what the cluster is asked. Of the token it has the hash only.
type question struct {
	token      [sha256.Size]byte
	verb, path string
}

// filterMetrics is the filter of the metrics server. It asks the cluster of the configuration.
func filterMetrics(clock cache.Clock) func(*rest.Config, *http.Client) (metricsserver.Filter, error) {
	return func(config *rest.Config, client *http.Client) (metricsserver.Filter, error) {
		reviews, err := authenticationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("client for token reviews: %w", err)
		}
		rights, err := authorizationclient.NewForConfigAndClient(config, client)
		if err != nil {
			return nil, fmt.Errorf("client for access reviews: %w", err)
		}
		a := newAccess(reviews.TokenReviews(), rights.SubjectAccessReviews(), clock)
		return a.filter, nil
	}
}

func newAccess(reviews authenticationclient.TokenReviewInterface,
	rights authorizationclient.SubjectAccessReviewInterface, clock cache.Clock) *access {
	return &access{
		reviews: reviews, rights: rights, known: cache.NewLRUExpireCacheWithClock(results, clock),
		letIn: cache.NewLRUExpireCacheWithClock(trusted, clock), strangers: rate.NewLimiter(strangersPerSecond,
			strangersAtOnce), clock: clock,
	}
}

func (a *access) filter(log logr.Logger, next http.Handler) (http.Handler, error) {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		code, err := a.judge(r)
		if err != nil {
			log.Error(err, "It is not known who may read the metrics")
			code = http.StatusInternalServerError
		}
		if code != http.StatusOK {
			http.Error(w, http.StatusText(code), code)
			return
		}
		next.ServeHTTP(w, r)
	}), nil
}

// judge returns 200, 401 or 403, or 429 when too many were asked about.
func (a *access) judge(r *http.Request) (int, error) {
	scheme, token, _ := strings.Cut(strings.TrimSpace(r.Header.Get("Authorization")), " ")
	if token = strings.TrimSpace(token); token == "" || !strings.EqualFold(scheme, "bearer") {
		return http.StatusUnauthorized, nil
	}
	q := question{sha256.Sum256([]byte(token)), strings.ToLower(r.Method), r.URL.Path}
	if code, ok := a.known.Get(q); ok {
		return code.(int), nil
	}
	if r.URL.Path != metricsPath {
		return http.StatusNotFound, nil // Each path would be another question.
	}
	if _, ok := a.letIn.Get(q); !ok && !a.strangers.AllowN(a.clock.Now(), 1) {
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
		a.letIn.Add(q, true, trustLife)
	case err == nil:
		a.letIn.Remove(q)
	}
	return code, err
}

func (a *access) ask(ctx context.Context, token string, q question) (int, error) {
	review := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}
	review, err := a.reviews.Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return 0, fmt.Errorf("ask whose token it is: %w", err)
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
		return 0, fmt.Errorf("ask what %s may: %w", user.Username, err)
	}
	if !right.Status.Allowed {
		return http.StatusForbidden, nil
	}
	return http.StatusOK, nil
}
