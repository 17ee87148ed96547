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
	// firstBackoff and maxBackoff are the shortest and the longest time between two attempts to evict one pod. For two
	// attempts to delete a pod, the shortest time is firstDeleteBackoff, and the longest is maxBackoff.
	firstBackoff       = 5 * time.Second
	firstDeleteBackoff = time.Second
	maxBackoff         = time.Minute

	// quickTimeout is the time limit of an eviction or deletion. The limit is short because an admission webhook that
	// hangs must not block the workers for long. After a call without an answer, the next calls for the same pod may
	// take up to maxTimeout. If the webhook may be ignored, the API server evicts the pod after up to 30 seconds.
	// Controller.longCalls limits how many workers wait for such calls.
	quickTimeout = 3 * time.Second
	maxTimeout   = 35 * time.Second

	maxReason = 256
)

// EvictFunc sends an eviction to the target cluster. It returns the answer of the API server and does not retry.
type EvictFunc func(ctx context.Context, eviction *policyv1.Eviction) error

// EvictWith returns an EvictFunc that uses its own connection to the target cluster. httpClient may be nil.
//
// After an answer with Retry-After, the clients of client-go wait and retry up to ten times. If the disruption
// controller has not processed a PodDisruptionBudget yet, these retries would block a worker for minutes.
func EvictWith(config *rest.Config, httpClient *http.Client) (EvictFunc, error) {
	config = rest.CopyConfig(config)
	config.APIPath = "/api"
	config.GroupVersion = &corev1.SchemeGroupVersion
	config.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	if httpClient == nil {
		var err error
		if httpClient, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("create an HTTP client for evictions: %w", err)
		}
	}
	connection, err := rest.RESTClientForConfigAndClient(config, httpClient)
	if err != nil {
		return nil, fmt.Errorf("create a client for evictions: %w", err)
	}
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		// Call Get, not Error. If a pod has two PodDisruptionBudgets, the API server returns a failed Status with the
		// HTTP code of a success.
		_, err := connection.Post().
			Namespace(eviction.Namespace).Resource("pods").Name(eviction.Name).SubResource("eviction").
			Body(eviction).MaxRetries(0).Do(ctx).Get()
		return err
	}, nil
}

func evictThrough(target client.Client) EvictFunc {
	return func(ctx context.Context, eviction *policyv1.Eviction) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: eviction.Namespace, Name: eviction.Name}}
		return target.SubResource("eviction").Create(ctx, pod, eviction)
	}
}

// call sends the eviction or deletion of a step to the API server. The UID precondition protects another pod with the
// same name.
func (c *Controller) call(ctx context.Context, s Step, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	meta := metav1.ObjectMeta{Namespace: s.Pod.Namespace, Name: s.Pod.Name}
	if s.Action == ActionDelete {
		return c.options.Target.Delete(ctx, &corev1.Pod{ObjectMeta: meta}, client.GracePeriodSeconds(s.Grace),
			client.Preconditions{UID: &s.UID})
	}
	options := &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))}
	if s.Grace > 0 {
		options.GracePeriodSeconds = &s.Grace
	}
	return c.options.Evict(ctx, &policyv1.Eviction{ObjectMeta: meta, DeleteOptions: options})
}

// resultOf evaluates the answer to an eviction or deletion. resultOf returns the result for the metric, and the
// Attempt to store for the pod. The Attempt is empty if the request succeeded or if the pod no longer exists.
func resultOf(action Action, err error, before Attempt, now time.Time) (result, Attempt) {
	first := firstBackoff
	if action == ActionDelete {
		first = firstDeleteBackoff
	}
	try := Attempt{Failures: before.Failures + 1, FirstFailure: before.FirstFailure, FirstDeletion: before.FirstDeletion,
		UnansweredAction: before.UnansweredAction}
	if try.FirstFailure.IsZero() {
		try.FirstFailure = now
	}
	if action == ActionDelete && try.FirstDeletion.IsZero() {
		try.Failures, try.FirstDeletion = 1, now
	}
	try.NotBefore = now.Add(min(first<<min(try.Failures-1, 10), maxBackoff))

	switch {
	case err == nil && action == ActionDelete:
		return deleted, Attempt{}
	case err == nil:
		return evicted, Attempt{}
	case apierrors.IsNotFound(err) || apierrors.IsConflict(err):
		// A conflict usually means that another pod now has the same name, so the pod is gone. If the conflict had
		// another cause, the pod still exists, and the next check finds it.
		return gone, Attempt{}
	case apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause):
		try.IsRefused, try.Explanation = true, rejection(err)
		return blocked, try
	case apierrors.IsTooManyRequests(err):
		if seconds, ok := apierrors.SuggestsClientDelay(err); ok && seconds > 0 {
			try.NotBefore = now.Add(min(time.Duration(seconds)*time.Second, maxBackoff))
		}
		try.Explanation = "the API server throttles requests"
		return throttled, try
	}
	try.Explanation = shorten(err.Error())
	if !answered(err) {
		try.UnansweredAction = action
		try.Explanation = "the API server did not answer, perhaps because an admission webhook hangs: " + try.Explanation
	}
	return failed, try
}

func rejection(err error) string {
	if cause, ok := apierrors.StatusCause(err, policyv1.DisruptionBudgetCause); ok && cause.Message != "" {
		return shorten(cause.Message)
	}
	return shorten(err.Error())
}

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
