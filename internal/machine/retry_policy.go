package machine

import (
	"hash/fnv"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// retryPolicy is how an error of the driver is reported and retried.
type retryPolicy struct {
	// reason is shown in the condition.
	reason string
	// first and most bound the exponential backoff; both zero: nothing is tried until the specification, its class or a
	// Secret changes.
	first, most time.Duration
}

func (c retryPolicy) terminal() bool { return c.most == 0 }

// isRejection reports whether the provider rejects the configuration. That is no failure of the machine: another one
// of the same configuration would be refused as well.
func (c retryPolicy) isRejection() bool { return c.reason == v1beta1.ReasonInvalidConfiguration }

// createRetryPolicy returns the policy after a failed Create. It is the only table of codes.
func createRetryPolicy(code provider.Code) retryPolicy {
	switch code {
	case provider.InvalidArgument, provider.FailedPrecondition:
		// A policy, a missing image, terms that nobody accepted: people mend that at the cloud, and nothing here changes.
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

// deleteRetryPolicy is the table for Delete: it never gives up, because the instance costs money.
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

// lookupRetryPolicy is the table for Get. It never gives up either.
func lookupRetryPolicy(code provider.Code) retryPolicy {
	c := deleteRetryPolicy(code)
	if c.reason == v1beta1.ReasonDeleteError {
		c.reason = v1beta1.ReasonProviderUnavailable
	}
	return c
}

// backoff returns how long to wait after the given number of failures in a row (at least 1): exponential from first to
// most, up to a quarter longer so that machines that failed together do not come back together, and never shorter than
// the cloud asked for. The seed makes the jitter of one machine the same in every pass.
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
