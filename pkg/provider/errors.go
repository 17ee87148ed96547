package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is a canonical error code, named as in gRPC. It decides what Machinist does next; see the comments.
type Code string

const (
	// OK is no error.
	OK Code = "OK"
	// InvalidArgument: the specification is wrong. Retried from ten to thirty minutes, and when spec, class or a Secret
	// changes.
	InvalidArgument Code = "InvalidArgument"
	// FailedPrecondition: the specification is right but cannot be served as things are (an image that does not exist,
	// a policy, tags of somebody else). Treated like InvalidArgument: people may mend it at the cloud.
	FailedPrecondition Code = "FailedPrecondition"
	// NotFound: the cloud answered and has no such instance. What follows is said at Driver.Get.
	NotFound Code = "NotFound"
	// AlreadyExists: the token or name was used with other parameters. Machinist looks the instance up by UID.
	AlreadyExists Code = "AlreadyExists"
	// ResourceExhausted: no quota, no capacity. Retried slowly, from one to ten minutes.
	ResourceExhausted Code = "ResourceExhausted"
	// Unauthenticated: the cloud does not accept the credentials. Retried slowly, and when the Secret changes.
	Unauthenticated Code = "Unauthenticated"
	// PermissionDenied: the credentials may not do this. As Unauthenticated.
	PermissionDenied Code = "PermissionDenied"
	// Throttled: too many calls. Retried after Error.RetryAfter, with backoff. It did not take effect.
	Throttled Code = "Throttled"
	// Unavailable: the cloud could not be reached or is failing. The call may have taken effect.
	Unavailable Code = "Unavailable"
	// DeadlineExceeded: no answer in time. The call may have taken effect.
	DeadlineExceeded Code = "DeadlineExceeded"
	// Aborted: a conflict with another operation. Retried. The call may have taken effect.
	Aborted Code = "Aborted"
	// Canceled: the caller went away. The call may have taken effect.
	Canceled Code = "Canceled"
	// Unimplemented: the driver cannot do this at all. Not retried until spec, class or a Secret changes.
	Unimplemented Code = "Unimplemented"
	// Internal: the cloud or the driver is broken. Retried. The call may have taken effect.
	Internal Code = "Internal"
	// Unknown: an error without a code. Retried. The call may have taken effect.
	Unknown Code = "Unknown"
)

// Terminal reports whether trying again soon is pointless: what was asked for is refused, and only a change of it or,
// of InvalidArgument and FailedPrecondition, of the things at the cloud has another outcome.
func (c Code) Terminal() bool {
	return c == InvalidArgument || c == FailedPrecondition || c == Unimplemented
}

// Ambiguous reports whether a call that failed with this code may have taken effect anyway.
func (c Code) Ambiguous() bool {
	switch c {
	case Unavailable, DeadlineExceeded, Aborted, Canceled, Internal, Unknown:
		return true
	}
	return false
}

// Error is an error with a code. Message is shown to users in conditions and events.
type Error struct {
	Code    Code
	Message string
	// Field is the path below providerSpec that an InvalidArgument or FailedPrecondition is about; empty when it is about
	// none.
	Field string
	// RetryAfter is the least time to wait that the cloud asked for; zero when it did not.
	RetryAfter time.Duration
	// Cause is kept for errors.Is and errors.As; it is not shown.
	Cause error
}

// Error returns "Code: field: message".
func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: providerSpec.%s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an *Error with a formatted message. A %w verb sets the cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// InvalidField returns an InvalidArgument about one field of providerSpec, path as in "disk.sizeGiB".
func InvalidField(path, format string, args ...any) *Error {
	e := Errorf(InvalidArgument, format, args...)
	e.Field = path
	return e
}

// CodeOf returns the code of an error: OK for nil, that of the *Error in its chain, DeadlineExceeded or Canceled for a
// bare context error, else Unknown.
func CodeOf(err error) Code {
	if err == nil {
		return OK
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return DeadlineExceeded
	case errors.Is(err, context.Canceled):
		return Canceled
	}
	return Unknown
}

// maxRetryAfter is how long a cloud can have a call wait. An answer that asks for days must not stop the deletion of an
// instance for days.
const maxRetryAfter = 10 * time.Minute

// RetryAfter returns the least time to wait that the error asks for, 10 minutes at most, or zero.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return min(max(e.RetryAfter, 0), maxRetryAfter)
	}
	return 0
}

// IsNotFound reports whether the cloud answered that there is no such instance.
func IsNotFound(err error) bool { return CodeOf(err) == NotFound }
