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

const informerRetryPeriod = time.Second

// retryingListWatch is a ListerWatcher that repeats a request every second until an API server answers. An error
// status from the API server usually counts as an answer (see isServerAnswer).
//
// The reflector of client-go eventually waits 30 to 60 seconds between two attempts, and informers cannot configure
// this. The informer would still be waiting after the end of an outage.
type retryingListWatch struct {
	toolscache.ListerWatcherWithContext
}

// ListWithContext implements toolscache.ListerWatcherWithContext.
func (r retryingListWatch) ListWithContext(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
	return untilAnswered(ctx, o, r.ListerWatcherWithContext.ListWithContext)
}

// WatchWithContext implements toolscache.ListerWatcherWithContext.
func (r retryingListWatch) WatchWithContext(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	return untilAnswered(ctx, o, r.ListerWatcherWithContext.WatchWithContext)
}

func untilAnswered[T any](ctx context.Context, o metav1.ListOptions,
	request func(context.Context, metav1.ListOptions) (T, error)) (answer T, err error) {
	ended := wait.PollUntilContextCancel(ctx, informerRetryPeriod, true, func(ctx context.Context) (bool, error) {
		answer, err = request(ctx, o)
		return err == nil || isServerAnswer(err), nil
	})
	if ended != nil {
		err = ended
	}
	return answer, err
}

// isServerAnswer reports whether an error is the answer of an API server. The function returns false for the error of
// a proxy that cannot reach the API server. The function also returns false if the API server rejected the
// credentials, because the credentials may be renewed (rule renewed-kubeconfig-used). client-go itself waits as long
// as a busy API server demands.
func isServerAnswer(err error) bool {
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
