package machineclass

import (
	"hash/fnv"
	"time"

	"machinist.dev/machinist/pkg/provider"
)

// backoff returns how long to wait after so many failures in a row (at least 1): exponential, up to a quarter longer so
// that classes that failed together do not ask together again, and never shorter than the cloud asked for. Refused
// credentials are waited for longer: their Secret's change ends the wait anyway.
func backoff(code provider.Code, failures int, retryAfter time.Duration, seed string) time.Duration {
	first, most := time.Second, 5*time.Minute
	switch code {
	case provider.Unauthenticated, provider.PermissionDenied:
		first, most = 30*time.Second, 10*time.Minute
	case provider.ResourceExhausted:
		first, most = time.Minute, 10*time.Minute
	case provider.InvalidArgument, provider.FailedPrecondition:
		first, most = 10*time.Minute, 30*time.Minute // As machines of it that the cloud refuses.
	}
	d := min(first<<min(failures-1, 20), most)
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{byte(failures)})
	d += time.Duration(float64(d) / 4 * float64(h.Sum32()) / (1 << 32))
	return max(d, retryAfter)
}
