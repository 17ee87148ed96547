package machine

import (
	"hash/fnv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

type retryPolicy struct {
	reason string
	// minBackoff and maxBackoff are the minimum and the maximum backoff. If both are zero, the call is repeated only
	// when the spec, the class or a Secret changes.
	minBackoff, maxBackoff time.Duration
}

func (c retryPolicy) terminal() bool { return c.maxBackoff == 0 }

// isRejection returns true if the provider rejects the configuration. A rejection does not make the machine Failed,
// because a replacement with the same configuration would also be rejected.
func (c retryPolicy) isRejection() bool { return c.reason == v1beta1.ReasonInvalidConfiguration }

func createRetryPolicy(code provider.Code) retryPolicy {
	switch code {
	case provider.InvalidArgument, provider.FailedPrecondition:
		// An administrator may fix the cause in the cloud, such as a policy, a missing image or terms that were not
		// accepted. Such a fix triggers no event in the cluster, so Create must be repeated after some time.
		return retryPolicy{v1beta1.ReasonInvalidConfiguration, 10 * time.Minute, 30 * time.Minute}
	case provider.Unimplemented:
		return retryPolicy{reason: v1beta1.ReasonInvalidConfiguration} // Only another driver can support the request.
	case provider.ResourceExhausted:
		return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}
	case provider.Unauthenticated, provider.PermissionDenied:
		return retryPolicy{v1beta1.ReasonCredentialsRefused, 30 * time.Second, 10 * time.Minute}
	case provider.Unavailable, provider.DeadlineExceeded, provider.Throttled:
		return retryPolicy{v1beta1.ReasonProviderUnavailable, time.Second, 5 * time.Minute}
	default:
		return retryPolicy{v1beta1.ReasonCreateFailed, time.Second, 5 * time.Minute}
	}
}

// deleteRetryPolicy returns the policy for a failed Delete. Every error is retried, because the instance costs money.
func deleteRetryPolicy(code provider.Code) retryPolicy {
	switch code {
	case provider.Unauthenticated, provider.PermissionDenied:
		return retryPolicy{v1beta1.ReasonCredentialsRefused, 30 * time.Second, 10 * time.Minute}
	case provider.InvalidArgument, provider.FailedPrecondition, provider.Unimplemented:
		return retryPolicy{v1beta1.ReasonDeleteError, 30 * time.Second, 10 * time.Minute}
	case provider.Unavailable, provider.DeadlineExceeded, provider.Throttled:
		return retryPolicy{v1beta1.ReasonProviderUnavailable, time.Second, 5 * time.Minute}
	default:
		return retryPolicy{v1beta1.ReasonDeleteError, time.Second, 5 * time.Minute}
	}
}

func lookupRetryPolicy(code provider.Code) retryPolicy {
	c := deleteRetryPolicy(code)
	if c.reason == v1beta1.ReasonDeleteError {
		c.reason = v1beta1.ReasonProviderUnavailable
	}
	return c
}

// backoff returns the delay after the given number of consecutive failures, which is at least 1. The delay grows
// exponentially from first to most, and is at least as long as the cloud has asked for. Jitter of up to a quarter is
// added, so that machines whose calls failed at the same time retry at different times. The jitter depends only on
// the seed and the number of failures.
func (c retryPolicy) backoff(failures int32, retryAfter time.Duration, seed string) time.Duration {
	d := c.minBackoff
	for range min(failures, 32) - 1 {
		if d >= c.maxBackoff {
			break
		}
		d *= 2
	}
	d = min(d, c.maxBackoff)
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{byte(failures), byte(failures >> 8)})
	d += time.Duration(float64(d) / 4 * float64(h.Sum32()) / float64(1<<32))
	return max(d, retryAfter)
}
