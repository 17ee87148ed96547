package driver

import (
	"context"
	"errors"
	"fmt"
	"net"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
)

// translate converts an error of the cloud to an error with a canonical code. The function replaces the message,
// because the cloud's message may contain parts of the request.
func translate(err error, attempted string) error {
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	answer := "the call failed"
	if e, ok := errors.AsType[*simcloud.Error](err); ok {
		out.Code, answer = codeOf(e.Code)
		out.RetryAfter = max(e.RetryAfter, 0)
	} else if _, ok := errors.AsType[*simcloud.ConnectionError](err); ok {
		out.Code, answer = noAnswer(err)
	}
	out.Message = attempted + ": " + answer
	return out
}

func codeOf(code simcloud.ErrorCode) (provider.Code, string) {
	switch code {
	case simcloud.CodeInvalidParameter:
		return provider.InvalidArgument, "the cloud refused a parameter"
	case simcloud.CodeUnauthorized:
		return provider.Unauthenticated, "the cloud does not accept the token"
	case simcloud.CodeForbidden:
		return provider.PermissionDenied, "the account does not have permission for this call"
	case simcloud.CodeNotFound:
		return provider.NotFound, "the instance does not exist in the cloud"
	case simcloud.CodeConflict:
		return provider.Aborted, "the state of the instance does not allow this call now"
	case simcloud.CodeIdempotentParameterMismatch:
		return provider.AlreadyExists, "the client token was used with other parameters"
	case simcloud.CodeUnsupportedOperation:
		return provider.FailedPrecondition, "the cloud does not support this change of the instance"
	case simcloud.CodeQuotaExceeded:
		return provider.ResourceExhausted, "the account's quota is used up"
	case simcloud.CodeInsufficientCapacity:
		return provider.ResourceExhausted, "the cloud has no capacity left"
	case simcloud.CodeThrottled:
		return provider.Throttled, "there were too many calls"
	case simcloud.CodeInternalError:
		return provider.Internal, "the cloud had an internal error"
	case simcloud.CodeUnavailable:
		return provider.Unavailable, "the cloud is temporarily unavailable"
	}
	return provider.Unknown, "the cloud returned an error that this driver does not know"
}

// noAnswer returns the code and the message for a call without an answer. For a network error, the message contains the
// text of the error, which consists of addresses. The text of other errors may contain secrets.
func noAnswer(err error) (provider.Code, string) {
	var network *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return provider.DeadlineExceeded, "the cloud did not answer in time"
	case errors.Is(err, context.Canceled):
		return provider.Canceled, "the call was cancelled"
	case errors.As(err, &network) && network.Op == "dial":
		return provider.Unavailable, fmt.Sprintf("the cloud cannot be reached: %v", network)
	}
	return provider.Unavailable, "the cloud did not return a usable answer"
}

// notOffered returns an error for a valid field whose value does not exist in the cloud.
func notOffered(path, format string, args ...any) error {
	e := provider.Errorf(provider.FailedPrecondition, format, args...)
	e.Field = path
	return e
}
