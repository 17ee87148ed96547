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

type validation struct {
	// reason and message describe the condition Ready. The condition is True only if the reason is Valid.
	reason  string
	message string
	code    provider.Code
	// capacity is the provider's answer, or nil without a successful call.
	capacity *provider.Capacity
	// userData is nil if the user data could not be read.
	userData *userData
	account  *account
	joins    []preflight.Finding
}

func valid(c provider.Capacity) validation {
	return validation{reason: v1beta1.ReasonValid, message: "The provider can create instances of this class.", capacity: &c}
}

// validate checks a class, and returns the result and the time until the next check. Zero means that only a change of
// the class or a Secret can change the result. The cloud is called only if its answer may have changed.
func (r *Reconciler) validate(ctx context.Context, class *v1beta1.MachineClass) (validation, time.Duration, error) {
	inputs := resolve.OfClass(class)
	if err := r.Driver.Validate(ctx, provider.ValidateRequest{Class: inputs.Class()}); err != nil {
		return refused(v1beta1.ReasonInvalidProviderSpec, err), 0, ctx.Err()
	}
	credentials, err := r.resolver.Credentials(ctx, class.Namespace, inputs.CredentialsRef)
	if err != nil {
		return unresolvedValidation(err)
	}
	if inputs.Credentials = credentials; !credentials.IsEmpty() {
		// The driver accepted the spec before, so this error is about the credentials.
		if err := r.Driver.Validate(ctx, provider.ValidateRequest{Class: inputs.Class()}); err != nil {
			return refused(v1beta1.ReasonCredentialsNotFound, err), 0, ctx.Err()
		}
	}
	template, err := r.resolver.UserData(ctx, class.Namespace, class.Spec.UserDataRef, class.Spec.Values)
	if e, ok := errors.AsType[*resolve.Error](err); ok && e.Reason == v1beta1.ReasonInvalidConfiguration {
		return validation{reason: v1beta1.ReasonInvalidUserData, message: e.Message}, 0, nil
	}
	if err != nil {
		return unresolvedValidation(err)
	}
	if err := bootstrap.Readable(template); err != nil {
		return validation{reason: v1beta1.ReasonInvalidUserData, message: err.Error()}, 0, nil
	}
	v, enqueue, err := r.capacity(ctx, class, inputs)
	v.userData = userDataOf(class.Namespace, template)
	v.account = &account{name: provider.AccountOf(r.Driver, inputs.Class())}
	return v, enqueue, err
}

func (r *Reconciler) capacity(ctx context.Context, class *v1beta1.MachineClass, inputs resolve.Inputs) (validation,
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
		return validation{}, 0, fmt.Errorf("get the capacity of MachineClass %s from the provider: %w", key, err)
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

// validationOf converts the driver's answer. retry means that another call may have another result.
func validationOf(capacity provider.Capacity, err error, hasCredentials bool) (v validation, retry bool) {
	code := provider.CodeOf(err)
	switch {
	case code == provider.OK, code == provider.Unimplemented:
		// If the driver does not know the capacity, the class's hints apply.
		return valid(capacity), false
	case code.Terminal():
		// The driver accepted the spec before, so this error is from the cloud. Check again later, because an
		// administrator may fix the cause in the cloud.
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

// unresolvedValidation returns the validation of a class whose references cannot be resolved. Errors that are not a
// *resolve.Error are returned unchanged.
func unresolvedValidation(err error) (validation, time.Duration, error) {
	if e, ok := errors.AsType[*resolve.Error](err); ok {
		var retry time.Duration
		if e.Forbidden {
			retry = resolve.ForbiddenRetry
		}
		return validation{reason: e.Reason, message: e.Message}, retry, nil
	}
	return validation{}, 0, err
}

// fingerprintOf returns a hash of all inputs of the provider's answer. A hash keeps secrets out of the state.
func fingerprintOf(uid types.UID, inputs resolve.Inputs) string {
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

// backoff returns how long to wait after at least one failure, in exponential steps plus a random part of up to a
// quarter. Because of the random part, classes that failed together are not retried together. The wait is at least what
// the cloud requested. If the cloud refused the credentials, the wait is longer, because a change of the Secret ends
// it.
func backoff(code provider.Code, failures int, retryAfter time.Duration, seed string) time.Duration {
	first, most := time.Second, 5*time.Minute
	switch code {
	case provider.Unauthenticated, provider.PermissionDenied:
		first, most = 30*time.Second, 10*time.Minute
	case provider.ResourceExhausted:
		first, most = time.Minute, 10*time.Minute
	case provider.InvalidArgument, provider.FailedPrecondition:
		first, most = 10*time.Minute, 30*time.Minute // The same as for machines that the cloud refuses.
	}
	d := min(first<<min(failures-1, 20), most)
	h := fnv.New32a()
	_, _ = h.Write([]byte(seed))
	_, _ = h.Write([]byte{byte(failures)})
	d += time.Duration(float64(d) / 4 * float64(h.Sum32()) / (1 << 32))
	return max(d, retryAfter)
}
