package simcloud

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrorCode is the kind of an error.
type ErrorCode string

const (
	// CodeInvalidParameter means that the request cannot succeed unless it is changed.
	CodeInvalidParameter ErrorCode = "InvalidParameter"
	// CodeUnauthorized means that the token is missing or wrong.
	CodeUnauthorized ErrorCode = "Unauthorized"
	// CodeForbidden means that the account lacks the permission.
	CodeForbidden ErrorCode = "Forbidden"
	// CodeNotFound means that the object does not exist or belongs to another account. An unknown path gets
	// CodeInvalidParameter instead.
	CodeNotFound ErrorCode = "NotFound"
	// CodeConflict means that the state of the instance does not allow the call.
	CodeConflict ErrorCode = "Conflict"
	// CodeIdempotentParameterMismatch means that the client token was used with other parameters.
	CodeIdempotentParameterMismatch ErrorCode = "IdempotentParameterMismatch"
	// CodeUnsupportedOperation means that the change needs another instance.
	CodeUnsupportedOperation ErrorCode = "UnsupportedOperation"
	// CodeQuotaExceeded means that the quota of the account is exhausted.
	CodeQuotaExceeded ErrorCode = "QuotaExceeded"
	// CodeInsufficientCapacity means that the cloud has no capacity left.
	CodeInsufficientCapacity ErrorCode = "InsufficientCapacity"
	// CodeThrottled means that there were too many calls. Error.RetryAfter contains the wait time.
	CodeThrottled ErrorCode = "Throttled"
	// CodeInternalError means that the cloud failed. The call may or may not have taken effect.
	CodeInternalError ErrorCode = "InternalError"
	// CodeUnavailable means that the cloud cannot serve calls at the moment.
	CodeUnavailable ErrorCode = "Unavailable"
)

var statusOfCode = map[ErrorCode]int{
	CodeInvalidParameter:            http.StatusBadRequest,
	CodeUnauthorized:                http.StatusUnauthorized,
	CodeForbidden:                   http.StatusForbidden,
	CodeNotFound:                    http.StatusNotFound,
	CodeConflict:                    http.StatusConflict,
	CodeIdempotentParameterMismatch: http.StatusConflict,
	CodeUnsupportedOperation:        http.StatusUnprocessableEntity,
	CodeQuotaExceeded:               http.StatusForbidden,
	CodeInsufficientCapacity:        http.StatusServiceUnavailable,
	CodeThrottled:                   http.StatusTooManyRequests,
	CodeInternalError:               http.StatusInternalServerError,
	CodeUnavailable:                 http.StatusServiceUnavailable,
}

// HTTPStatus returns the HTTP status for this code, or 0 for an unknown code.
func (c ErrorCode) HTTPStatus() int { return statusOfCode[c] }

// codeOfStatus returns the code for an answer that the cloud did not send, for example from a proxy. codeOfStatus
// never returns CodeNotFound: only the cloud knows whether an instance exists.
func codeOfStatus(status int) ErrorCode {
	switch status {
	case http.StatusUnauthorized:
		return CodeUnauthorized
	case http.StatusForbidden:
		return CodeForbidden
	case http.StatusConflict:
		return CodeConflict
	case http.StatusUnprocessableEntity:
		return CodeUnsupportedOperation
	case http.StatusTooManyRequests:
		return CodeThrottled
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return CodeUnavailable
	}
	if status >= 400 && status < 500 && status != http.StatusNotFound {
		return CodeInvalidParameter
	}
	return CodeInternalError
}

// Error is an error returned by the cloud.
type Error struct {
	Code    ErrorCode
	Message string
	// RetryAfter is how long to wait before the next call, or 0 if the cloud did not specify it.
	RetryAfter time.Duration
}

// ErrorBody is the JSON form of an Error. For other clients, the Retry-After header contains the same time in whole
// seconds, rounded up.
type ErrorBody struct {
	Code       ErrorCode `json:"code"`
	Message    string    `json:"message"`
	RetryAfter Duration  `json:"retryAfter,omitempty"`
}

// Error returns the code and the message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// ConnectionError means that there was no usable answer. The call may or may not have taken effect. The error wraps its
// cause, such as context.DeadlineExceeded or syscall.ECONNREFUSED.
type ConnectionError struct {
	// Operation is the name of the call, such as "CreateInstance".
	Operation string
	Err       error
}

// Error returns the operation and the cause.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from the cloud to %s: %v", e.Operation, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// CodeOf returns the code of the *Error in the chain of err, or "".
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
