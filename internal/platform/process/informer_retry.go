package process

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// informerRetryPeriod is the time between two attempts of a request that does not reach an API server.
const informerRetryPeriod = time.Second

// retried is a ListerWatcher that repeats a request every second until an API server answers, even with a rejection.
// The reflector of client-go, whose backoff an informer cannot configure, finally waits 30 to 60 seconds between two
// attempts. It would still wait after the outage, when other requests succeed again.
type retried struct {
	toolscache.ListerWatcherWithContext
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (r retried) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return untilAnswered(ctx, o, r.ListerWatcherWithContext.ListWithContext)
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (r retried) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return untilAnswered(ctx, o, r.ListerWatcherWithContext.WatchWithContext)
}

// untilAnswered repeats a request until an API server answers or ctx ends.
func untilAnswered[T any](ctx context.Context, o metav1.ListOptions,
	request func(context.Context, metav1.ListOptions) (T, error)) (answer T, err error) {
	ended := wait.PollUntilContextCancel(ctx, informerRetryPeriod, true, func(ctx context.Context) (bool, error) {
		answer, err = request(ctx, o)
		return err == nil || answered(err), nil
	})
	if ended != nil {
		err = ended
	}
	return answer, err
}

// answered reports whether an error is the answer of an API server. A proxy may answer that it does not reach the API
// server either. A rejection of the credentials does not count, because they may be renewed (rule
// renewed-kubeconfig-used). A busy API server says when to try again, which client-go obeys.
func answered(err error) bool {
	status, ok := errors.AsType[*apierrors.StatusError](err)
	if !ok {
		return false
	}
	switch status.Status().Code {
	case http.StatusUnauthorized:
		return false
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		_, busy := apierrors.SuggestsClientDelay(err)
		return busy
	}
	return true
}
