package drain

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// firstBackoff and maxBackoff bound the time between two attempts to evict one pod, firstDeleteBackoff and
	// maxBackoff between two to delete it.
	firstBackoff       = 5 * time.Second
	firstDeleteBackoff = time.Second
	maxBackoff         = time.Minute

	// callTimeout bounds one eviction or deletion, see Request.patience for less. The API server itself may take some
	// seconds over one, when many evict pods of the same PodDisruptionBudget, and an admission webhook 30.
	callTimeout = 35 * time.Second

	// maxReason bounds what an error of the API server contributes to a message.
	maxReason = 256
)

// EvictFunc sends an eviction to the target cluster. It returns what the API server answers, without trying again.
type EvictFunc func(ctx context.Context, eviction *policyv1.Eviction) error

// EvictWith returns an EvictFunc on a connection to the target cluster. httpClient may be nil.
//
// The ordinary clients obey a Retry-After of the API server by sleeping, up to ten times, which would hold a worker for
// minutes while a PodDisruptionBudget is new.
func EvictWith(config *rest.Config, httpClient *http.Client) (EvictFunc, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("make an HTTP client for evictions: %w", err)
		}
	}
	connection, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("make a client for evictions: %w", err)
	}
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		// Get, not Error: a pod of two PodDisruptionBudgets is answered by a failed Status under a code of success.
		_, err := connection.Post().
			Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).SubResource("eviction").
			Body(eviction).MaxRetries(0).Do(ctx).Get()
		return err
	}, nil
}

// evictThrough returns an EvictFunc on a client.
func evictThrough(target client.Client) EvictFunc {
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eviction.Namespace, Name: eviction.Name}}
		return target.SubResource("eviction").Create(ctx, pod, eviction)
	}
}

// evict asks for the eviction of a step's pod, and of no other that has taken its name.
func (c *Controller) evict(ctx context.Context, s Step, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	eviction := &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: s.Pod.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))},
	}
	if s.Grace > 0 {
		eviction.DeleteOptions.GracePeriodSeconds = &s.Grace
	}
	return c.options.Evict(ctx, eviction)
}

// delete deletes a step's pod with the grace that the step gives it.
func (c *Controller) delete(ctx context.Context, s Step, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: s.Pod.Name}}
	return c.options.Target.Delete(ctx, pod, client.GracePeriodSeconds(s.Grace), client.Preconditions{UID: &s.UID})
}

// judge tells what came of an attempt, and what that means for the next one. The Try is for a pod that is still there
// and was not reported to end.
func judge(action Action, err error, before Try, now time.Time) (result, Try) {
	first := firstBackoff
	if action == Delete {
		first = firstDeleteBackoff
	}
	try := Try{Failures: before.Failures + 1, Deleting: before.Deleting}
	if action == Delete && try.Deleting.IsZero() {
		try.Failures, try.Deleting = 1, now
	}
	try.NotBefore = now.Add(min(first<<min(try.Failures-1, 10), maxBackoff))

	switch {
	case err == nil && action == Delete:
		return deleted, Try{}
	case err == nil:
		return evicted, Try{}
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// A conflict is the UID: another pod has taken the name. If it was something else, the next check shows it.
		return gone, Try{}
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		try.Refused, try.Why = true, rejection(err)
		return blocked, try
	case apierrors.IsTooManyRequests(err):
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			try.NotBefore = now.Add(min(time.Duration(seconds)*time.Second, maxBackoff))
		}
		try.Why = "the API server has too many requests"
		return throttled, try
	}
	try.Why = shorten(err.Error())
	return failed, try
}

// rejection returns what the API server says of the PodDisruptionBudget that refused an eviction.
func rejection(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok && cause.Message != "" {
		return shorten(cause.Message)
	}
	return shorten(err.Error())
}

// answered shows whether the API server answered at all. If not, there is no use in trying the next pod.
func answered(err error) bool {
	var status apierrors.APIStatus
	return err == nil || errors.As(err, &status)
}

func shorten(text string) string {
	if runes := []rune(text); len(runes) > maxReason {
		return string(runes[:maxReason]) + "…"
	}
	return text
}
