package simcloud

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrorCode identifies the kind of an error.
type ErrorCode string

const (
	// CodeInvalidParameter: the request cannot succeed without a change.
	CodeInvalidParameter ErrorCode = "InvalidParameter"
	// CodeUnauthorized: the token is missing or wrong.
	CodeUnauthorized ErrorCode = "Unauthorized"
	// CodeForbidden: the account does not have permission.
	CodeForbidden ErrorCode = "Forbidden"
	// CodeNotFound: the object does not exist, or belongs to another account. For a path that is not part of the API, the
	// code is CodeInvalidParameter.
	CodeNotFound ErrorCode = "NotFound"
	// CodeConflict: the state of the instance does not allow the call.
	CodeConflict ErrorCode = "Conflict"
	// CodeIdempotentParameterMismatch: the client token was used with other parameters.
	CodeIdempotentParameterMismatch ErrorCode = "IdempotentParameterMismatch"
	// CodeUnsupportedOperation: the change needs another instance.
	CodeUnsupportedOperation ErrorCode = "UnsupportedOperation"
	// CodeQuotaExceeded: the quota of the account is used up.
	CodeQuotaExceeded ErrorCode = "QuotaExceeded"
	// CodeInsufficientCapacity: the cloud has no capacity left.
	CodeInsufficientCapacity ErrorCode = "InsufficientCapacity"
	// CodeThrottled: there were too many calls. Error.RetryAfter is how long to wait.
	CodeThrottled ErrorCode = "Throttled"
	// CodeInternalError: the cloud failed. The call may or may not have taken effect.
	CodeInternalError ErrorCode = "InternalError"
	// CodeUnavailable: the cloud cannot serve calls at the moment.
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

// HTTPStatus returns the HTTP status of an answer with this code, or 0 if the code does not exist.
func (c ErrorCode) HTTPStatus() int { return statusOfCode[c] }

// codeOfStatus returns the code for an answer whose body is not that of the cloud, for example if a proxy has sent the
// answer. It never returns CodeNotFound: only the cloud itself knows that an instance does not exist.
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

// Error is an error that the cloud returned.
type Error struct {
	Code    ErrorCode
	Message string
	// RetryAfter is the time that the caller should wait before the next call. It is 0 if the cloud has not set a time.
	RetryAfter time.Duration
}

// ErrorBody is the JSON form of an Error. The header Retry-After contains the same time in whole seconds, rounded up,
// for other clients.
type ErrorBody struct {
	Code       ErrorCode `json:"code"`
	Message    string    `json:"message"`
	RetryAfter Duration  `json:"retryAfter,omitempty"`
}

// Error returns code and message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// ConnectionError means that there was no usable answer. The call may or may not have taken effect. It wraps its cause,
// so errors.Is can find errors such as context.DeadlineExceeded or syscall.ECONNREFUSED.
type ConnectionError struct {
	// Operation is the call, such as "CreateInstance".
	Operation string
	Err       error
}

// Error returns operation and cause.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from the cloud to %s: %v", e.Operation, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// CodeOf returns the code of the *Error in err's chain, or "".
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
