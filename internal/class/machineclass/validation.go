package machineclass

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/fnv"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/class/preflight"
	"machinist.dev/machinist/pkg/provider"
)

// validation is what is known about a class.
type validation struct {
	// reason and message are those of the condition Ready; it is True for the reason Valid only.
	reason  string
	message string
	// code is that of the driver's error.
	code provider.Code
	// capacity is what the provider resolved; nil where it was not asked or did not answer.
	capacity *provider.Capacity
	// userData is what is known of the user data; nil where it could not be read.
	userData *userData
	// account is what is known of the account of the credentials; nil where they could not be read.
	account *account
	// joins is what keeps machines from joining.
	joins []preflight.Finding
}

func valid(c provider.Capacity) validation {
	return validation{reason: v1beta1.ReasonValid, message: "The provider can make instances of this class.", capacity: &c}
}

// judge finds the decision on a class. It asks the cloud only if that could tell something new, and returns when it
// may be asked again, zero for not before something changed.
func (r *Reconciler) judge(ctx context.Context, class *v1beta1.MachineClass) (validation, time.Duration, error) {
	inputs := resolve.OfClass(class)
	if err := r.Driver.Validate(ctx, provider.ValidateRequest{Class: inputs.Class()}); err != nil {
		return refused(v1beta1.ReasonInvalidProviderSpec, err), 0, ctx.Err()
	}
	credentials, err := r.resolver.Credentials(ctx, class.Namespace, inputs.CredentialsRef)
	if err != nil {
		return missing(err)
	}
	if inputs.Credentials = credentials; !credentials.Empty() {
		// The specification was accepted alone, so what is refused now is the credentials.
		if err := r.Driver.Validate(ctx, provider.ValidateRequest{Class: inputs.Class()}); err != nil {
			return refused(v1beta1.ReasonCredentialsNotFound, err), 0, ctx.Err()
		}
	}
	template, err := r.resolver.UserData(ctx, class.Namespace, class.Spec.UserDataRef, class.Spec.Values)
	if e, ok := errors.AsType[*resolve.Error](err); ok && e.Reason == v1beta1.ReasonInvalidConfiguration {
		return validation{reason: v1beta1.ReasonInvalidUserData, message: e.Message}, 0, nil
	}
	if err != nil {
		return missing(err)
	}
	if err := bootstrap.Readable(template); err != nil {
		return validation{reason: v1beta1.ReasonInvalidUserData, message: err.Error()}, 0, nil
	}
	v, enqueue, err := r.ask(ctx, class, inputs)
	v.userData = userDataOf(class.Namespace, template)
	v.account = &account{name: provider.AccountOf(r.Driver, inputs.Class())}
	return v, enqueue, err
}

// ask asks the provider what a Node of the class will offer, unless it was asked the same before.
func (r *Reconciler) ask(ctx context.Context, class *v1beta1.MachineClass, inputs resolve.Resolved) (validation,
	time.Duration, error) {
	key, fingerprint, now := client.ObjectKeyFromObject(class), fingerprintOf(class.UID, inputs), r.Clock.Now()
	known := r.state.of(key)
	if known.fingerprint == fingerprint {
		if known.retryAt.IsZero() {
			return known.validation, 0, nil
		}
		if left := known.retryAt.Sub(now); left > 0 {
			return known.validation, left, nil
		}
	} else {
		known = classState{fingerprint: fingerprint}
	}
	capacity, err := r.Driver.Capacity(ctx, provider.CapacityRequest{Class: inputs.Class()})
	if err != nil && ctx.Err() != nil {
		return validation{}, 0, fmt.Errorf("ask the provider about MachineClass %s: %w", key, err)
	}
	var wait time.Duration
	var retry bool
	known.validation, retry = validationOf(capacity, err, inputs.CredentialsRef != nil)
	if known.retryAt = (time.Time{}); retry {
		known.failures++
		wait = backoff(known.validation.code, known.failures, provider.RetryAfter(err), string(class.UID))
		known.retryAt = r.Clock.Now().Add(wait)
	} else {
		known.failures = 0
	}
	r.state.set(key, known)
	return known.validation, wait, nil
}

// validationOf is the one table from what the driver answered about a class to the decision, and whether asking again
// can change it.
func validationOf(capacity provider.Capacity, err error, hasCredentials bool) (v validation, retry bool) {
	code := provider.CodeOf(err)
	switch {
	case code == provider.OK, code == provider.Unimplemented:
		// A driver that cannot tell leaves it to the hints in the class.
		return valid(capacity), false
	case code.Terminal():
		// The driver accepted the specification by itself, so it is the cloud that refuses it, and people may mend it there.
		return refused(v1beta1.ReasonInvalidProviderSpec, err), true
	case code == provider.Unauthenticated && !hasCredentials:
		return refused(v1beta1.ReasonCredentialsNotFound, err), false
	case code == provider.Unauthenticated, code == provider.PermissionDenied:
		return refused(v1beta1.ReasonCredentialsRefused, err), true
	default:
		return refused(v1beta1.ReasonProviderUnavailable, err), true
	}
}

func refused(reason string, err error) validation {
	message := err.Error()
	if e, ok := errors.AsType[*provider.Error](err); ok {
		message = e.Error()
	}
	return validation{reason: reason, message: message, code: provider.CodeOf(err)}
}

// missing turns what the resolver did not find into a decision; other errors stay errors.
func missing(err error) (validation, time.Duration, error) {
	if e, ok := errors.AsType[*resolve.Error](err); ok {
		return validation{reason: e.Reason, message: e.Message}, 0, nil
	}
	return validation{}, 0, err
}

// fingerprintOf changes whenever the provider could give another answer for a reason of ours. It stays in memory; the
// hash keeps secrets out of it.
func fingerprintOf(uid types.UID, inputs resolve.Resolved) string {
	h := sha256.New()
	part := func(data []byte) {
		fmt.Fprintf(h, "%d\x00", len(data))
		h.Write(data)
	}
	part([]byte(uid))
	part(inputs.ProviderSpec)
	for _, key := range inputs.Credentials.Keys() {
		value, _ := inputs.Credentials.Get(key)
		part([]byte(key))
		part(value.Reveal())
	}
	return hex.EncodeToString(h.Sum(nil))
}

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
