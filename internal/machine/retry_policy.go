package machine

import (
	"hash/fnv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// retryPolicy defines how an error of the driver is reported and retried.
type retryPolicy struct {
	// reason is the reason of the condition.
	reason string
	// first and most are the shortest and the longest backoff. If both are zero, nothing is tried until the
	// specification, the class or a Secret changes.
	first, most time.Duration
}

func (c retryPolicy) terminal() bool { return c.most == 0 }

// isRejection reports whether the provider rejects the configuration. This is not a failure of the machine, because a
// replacement with the same configuration would be rejected as well.
func (c retryPolicy) isRejection() bool { return c.reason == v1beta1.ReasonInvalidConfiguration }

// createRetryPolicy returns the policy after a failed Create.
func createRetryPolicy(code provider.Code) retryPolicy {
	switch code {
	case provider.InvalidArgument, provider.FailedPrecondition:
		// An administrator may fix the cause in the cloud, such as a policy, a missing image or terms that were not
		// accepted. No object changes then, so Create must be repeated.
		return retryPolicy{v1beta1.ReasonInvalidConfiguration, 10 * time.Minute, 30 * time.Minute}
	case provider.Unimplemented:
		return retryPolicy{reason: v1beta1.ReasonInvalidConfiguration} // Only another driver can do it.
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

// deleteRetryPolicy returns the policy after a failed Delete. It always retries, because the instance costs money.
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

// lookupRetryPolicy returns the policy after a failed Get. It always retries, too.
func lookupRetryPolicy(code provider.Code) retryPolicy {
	c := deleteRetryPolicy(code)
	if c.reason == v1beta1.ReasonDeleteError {
		c.reason = v1beta1.ReasonProviderUnavailable
	}
	return c
}

// backoff returns how long to wait after the given number of failures in a row (at least 1). The wait grows
// exponentially from first to most, and is never shorter than the cloud asked for. Up to a quarter is added, so that
// machines that failed together are not retried together. The seed makes this jitter the same in every pass of one
// machine.
func (c retryPolicy) backoff(failures int32, retryAfter time.Duration, seed string) time.Duration {
	d := c.first
	for range min(failures, 32) - 1 {
		if d >= c.most {
			break
		}
		d *= 2
	}
	d = min(d, c.most)
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{byte(failures), byte(failures >> 8)})
	d += time.Duration(float64(d) / 4 * float64(h.Sum32()) / float64(1<<32))
	return max(d, retryAfter)
}
