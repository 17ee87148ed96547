package driver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// translate makes of the cloud's error one with a canonical code. The message is ours: what the cloud wrote may repeat
// what it was sent.
func translate(err error, attempted string) error {
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	answer := "the call failed"
	if e, ok := errors.AsType[*simcloud.Error](err); ok {
		out.Code, answer = meaning(e.Code)
		out.RetryAfter = max(e.RetryAfter, 0)
	} else if _, ok := errors.AsType[*simcloud.ConnectionError](err); ok {
		out.Code, answer = noAnswer(err)
	}
	out.Message = attempted + ": " + answer
	return out
}

// meaning is the one table from the cloud's codes to ours.
func meaning(code simcloud.ErrorCode) (provider.Code, string) {
	switch code {
	case simcloud.CodeInvalidParameter:
		return provider.InvalidArgument, "the cloud refuses a parameter"
	case simcloud.CodeUnauthorized:
		return provider.Unauthenticated, "the cloud does not accept the token"
	case simcloud.CodeForbidden:
		return provider.PermissionDenied, "the cloud does not allow the account to do this"
	case simcloud.CodeNotFound:
		return provider.NotFound, "the cloud has no such instance"
	case simcloud.CodeConflict:
		return provider.Aborted, "the state of the instance does not allow it now"
	case simcloud.CodeIdempotentParameterMismatch:
		return provider.AlreadyExists, "the token was used with other parameters"
	case simcloud.CodeUnsupportedOperation:
		return provider.FailedPrecondition, "the cloud cannot do this to the instance"
	case simcloud.CodeQuotaExceeded:
		return provider.ResourceExhausted, "the account's quota is used up"
	case simcloud.CodeInsufficientCapacity:
		return provider.ResourceExhausted, "the cloud has no capacity left"
	case simcloud.CodeThrottled:
		return provider.Throttled, "the cloud was called too often"
	case simcloud.CodeInternalError:
		return provider.Internal, "the cloud failed"
	case simcloud.CodeUnavailable:
		return provider.Unavailable, "the cloud does not serve at the moment"
	}
	return provider.Unknown, "the cloud answered with an error that this driver does not know"
}

// noAnswer tells who gave up. Of the cause only a network error is shown: it names addresses and nothing of what was
// sent or received.
func noAnswer(err error) (provider.Code, string) {
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return provider.DeadlineExceeded, "no answer from the cloud in time"
	case errors.Is(err, context.Canceled):
		return provider.Canceled, "the call was cancelled"
	case errors.As(err, &network) && network.Op == "dial":
		return provider.Unavailable, fmt.Sprintf("the cloud cannot be reached: %v", network)
	}
	return provider.Unavailable, "no usable answer from the cloud"
}

// unserved is about a field that is well-formed and names what the cloud does not have.
func unserved(path, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = path
	return e
}
