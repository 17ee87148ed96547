package process

import (
	"context"
	"errors"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

var errRefused = errors.New("connection refused")

func statusError(status, retryAfter int) error {
	return apierrors.NewGenericServerResponse(status, http.MethodGet, corev1.Resource("nodes"), "", "", retryAfter, true)
}

// failing returns a ListerWatcher whose first requests return the given errors in order. Later requests succeed. The
// ListerWatcher counts all requests in *asked.
func failing(asked *int, failures ...error) retryingListWatch {
	next := func() error {
		if *asked++; *asked <= len(failures) {
			return failures[*asked-1]
		}
		return nil
	}
	return retryingListWatch{ListerWatcherWithContext: &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			if err := next(); err != nil {
				return nil, err
			}
			return &corev1.NodeList{}, nil
		},
		WatchFuncWithContext: func(context.Context, metav1.ListOptions) (watch.Interface, error) {
			if err := next(); err != nil {
				return nil, err
			}
			return watch.NewFake(), nil
		},
	}}
}

// Rule: outage-ends-with-caches.
func TestARequestOfAnInformerIsRepeatedUntilAnAPIServerAnswers(t *testing.T) {
	forbidden := apierrors.NewForbidden(corev1.Resource("nodes"), "", nil)
	for name, test := range map[string]struct {
		failures []error
		want     error
		requests int
	}{
		"an answer":                     {nil, nil, 1},
		"no connection, then an answer": {[]error{errRefused}, nil, 2},
		"refused credentials":           {[]error{statusError(401, 0)}, nil, 2},
		"a proxy without an API server": {[]error{statusError(503, 0), statusError(502, 0)}, nil, 3},
		"a rejection":                   {[]error{errRefused, forbidden}, forbidden, 2},
		"an error of the server":        {[]error{statusError(500, 0)}, statusError(500, 0), 1},
		"a version that is gone":        {[]error{statusError(410, 0)}, statusError(410, 0), 1},
		"a server that is busy":         {[]error{statusError(503, 1)}, statusError(503, 1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			listed, watched := 0, 0
			list, err := failing(&listed, test.failures...).ListWithContext(t.Context(), metav1.ListOptions{})
			if listed != test.requests || !sameError(err, test.want) || (list == nil) != (test.want != nil) {
				t.Errorf("list: %v, %v after %d requests, want %v after %d", list, err, listed, test.want, test.requests)
			}
			w, err := failing(&watched, test.failures...).WatchWithContext(t.Context(), metav1.ListOptions{})
			if watched != test.requests || !sameError(err, test.want) || (w == nil) != (test.want != nil) {
				t.Errorf("watch: %v, %v after %d requests, want %v after %d", w, err, watched, test.want, test.requests)
			}
		})
	}
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

// Rule: outage-ends-with-caches.
func TestAnUnansweredRequestEndsWithItsInformer(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	asked := make(chan struct{}, 1)
	unreachable := retryingListWatch{ListerWatcherWithContext: &toolscache.ListWatch{
		ListWithContextFunc: func(context.Context, metav1.ListOptions) (runtime.Object, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return nil, errRefused
		},
	}}
	ended := make(chan error)
	go func() {
		_, err := unreachable.ListWithContext(ctx, metav1.ListOptions{})
		ended <- err
	}()
	for range 2 {
		<-asked
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the request ended with %v, want context.Canceled", err)
	}
}
