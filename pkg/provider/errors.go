package provider

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Code is an error code with the same meaning as in gRPC. The code decides what Machinist does after the error.
type Code string

const (
	// OK means that there is no error.
	OK Code = "OK"
	// InvalidArgument: the specification is wrong. Machinist retries after 10 to 30 minutes, and at once when the
	// specification, the class or a Secret changes.
	InvalidArgument Code = "InvalidArgument"
	// FailedPrecondition: the specification is well-formed, but cannot be served now. For example, an image does not
	// exist, a policy forbids the instance, or the instance carries the tags of another owner. Machinist retries at
	// the same times as after InvalidArgument, because an administrator may fix the cause in the cloud.
	FailedPrecondition Code = "FailedPrecondition"
	// NotFound: the cloud answered and has no such instance. Driver.Get describes the consequences.
	NotFound Code = "NotFound"
	// AlreadyExists: the token or name was used with other parameters. Machinist looks the instance up by UID.
	AlreadyExists Code = "AlreadyExists"
	// ResourceExhausted: there is no quota or no capacity. Machinist retries after 1 to 10 minutes.
	ResourceExhausted Code = "ResourceExhausted"
	// Unauthenticated: the cloud does not accept the credentials. Machinist retries after 30 seconds to 10 minutes, and
	// at once when the Secret changes.
	Unauthenticated Code = "Unauthenticated"
	// PermissionDenied: the credentials do not allow the call. Machinist retries at the same times as after
	// Unauthenticated.
	PermissionDenied Code = "PermissionDenied"
	// Throttled: there were too many calls. The call did not take effect. Machinist retries after Error.RetryAfter, or
	// with backoff.
	Throttled Code = "Throttled"
	// Unavailable: the cloud is unreachable or failing. The call may have taken effect. Machinist retries.
	Unavailable Code = "Unavailable"
	// DeadlineExceeded: there was no answer in time. The call may have taken effect. Machinist retries.
	DeadlineExceeded Code = "DeadlineExceeded"
	// Aborted: the call conflicted with another operation. The call may have taken effect. Machinist retries.
	Aborted Code = "Aborted"
	// Canceled: the caller canceled the context. The call may have taken effect. Machinist retries.
	Canceled Code = "Canceled"
	// Unimplemented: the driver does not support the request at all. Machinist retries only when the specification,
	// the class or a Secret changes.
	Unimplemented Code = "Unimplemented"
	// Internal: the cloud or the driver has a bug. The call may have taken effect. Machinist retries.
	Internal Code = "Internal"
	// Unknown: the error has no code. The call may have taken effect. Machinist retries.
	Unknown Code = "Unknown"
)

// Terminal reports whether a retry in the near future would have the same result. A retry can succeed only after the
// request has changed. After InvalidArgument and FailedPrecondition, a retry can also succeed after a change in the
// cloud.
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

// Error is the error type that drivers return. The Code of an Error decides what Machinist does next. Machinist shows
// Message to users in conditions and events.
type Error struct {
	Code    Code
	Message string
	// Field is the path of the field that caused an InvalidArgument or FailedPrecondition, relative to providerSpec. It
	// is empty if no single field caused the error.
	Field string
	// CreateCode belongs to NotFound as the answer to a Get with a CreateHandle. It means that the creation has failed and
	// left no instance. The value is the code that Create would have returned if it had failed for the same reason. After
	// ResourceExhausted, Machinist requests another instance for the same machine, as after Instance.StateCode. After any
	// other code, the machine becomes Failed.
	CreateCode Code
	// RetryAfter is the minimum time before the next call that the cloud requested, or zero.
	RetryAfter time.Duration
	// Cause is the wrapped error, for errors.Is and errors.As. The field is not shown to users.
	Cause error
}

// Error returns "Code: providerSpec.field: message", or "Code: message" if the error is not about a field.
func (e *Error) Error() string {
	if e.Field != "" {
		return fmt.Sprintf("%s: providerSpec.%s: %s", e.Code, e.Field, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Code, e.Message)
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// Errorf returns an *Error with a formatted message. The verb %w also sets Cause.
func Errorf(code Code, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Cause: errors.Unwrap(err)}
}

// InvalidField returns an InvalidArgument error about one field. The path is relative to providerSpec, as in
// "disk.sizeGiB".
func InvalidField(path, format string, args ...any) *Error {
	e := Errorf(InvalidArgument, format, args...)
	e.Field = path
	return e
}

// CodeOf returns the code of an error. The code of nil is OK. An *Error in the error's chain determines the code. A
// bare context error has the code DeadlineExceeded or Canceled. Any other error has the code Unknown.
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

// maxRetryAfter limits the wait that a cloud can request. A response must not delay the deletion of an instance for
// days.
const maxRetryAfter = 10 * time.Minute

// RetryAfter returns the minimum waiting time that the error requests, at most 10 minutes, or zero.
func RetryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return min(max(e.RetryAfter, 0), maxRetryAfter)
	}
	return 0
}

// CreateCodeOf returns the code with which the creation of the instance failed, or "" if the error does not say this.
func CreateCodeOf(err error) Code {
	if e, ok := errors.AsType[*Error](err); ok && e.Code == NotFound {
		return e.CreateCode
	}
	return ""
}

// IsNotFound reports whether err means that the cloud answered and has no such instance.
func IsNotFound(err error) bool { return CodeOf(err) == NotFound }
