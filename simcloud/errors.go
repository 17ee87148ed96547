package simcloud

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// ErrorCode says in one word what went wrong.
type ErrorCode string

const (
	// CodeInvalidParameter: the request cannot succeed as it is.
	CodeInvalidParameter ErrorCode = "InvalidParameter"
	// CodeUnauthorized: the token is missing or wrong.
	CodeUnauthorized ErrorCode = "Unauthorized"
	// CodeForbidden: the account may not do this.
	CodeForbidden ErrorCode = "Forbidden"
	// CodeNotFound: there is no such thing, or it belongs to another account.
	// A path that is not part of the API is CodeInvalidParameter instead.
	CodeNotFound ErrorCode = "NotFound"
	// CodeConflict: the instance is in a state that does not allow this.
	CodeConflict ErrorCode = "Conflict"
	// CodeIdempotentParameterMismatch: the client token was used with other
	// parameters.
	CodeIdempotentParameterMismatch ErrorCode = "IdempotentParameterMismatch"
	// CodeUnsupportedOperation: this change needs another instance.
	CodeUnsupportedOperation ErrorCode = "UnsupportedOperation"
	// CodeQuotaExceeded: the account has as much as it may have.
	CodeQuotaExceeded ErrorCode = "QuotaExceeded"
	// CodeInsufficientCapacity: the cloud itself has run out.
	CodeInsufficientCapacity ErrorCode = "InsufficientCapacity"
	// CodeThrottled: too many calls; Error.RetryAfter says how long to wait.
	CodeThrottled ErrorCode = "Throttled"
	// CodeInternalError: the cloud failed; whether the call took effect is
	// unknown.
	CodeInternalError ErrorCode = "InternalError"
	// CodeUnavailable: the cloud does not serve at the moment.
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

// HTTPStatus is the status that an answer with this code has, and 0 for a code
// that does not exist.
func (c ErrorCode) HTTPStatus() int { return statusOfCode[c] }

// codeOfStatus guesses the code of an answer without a readable body, such as
// that of a proxy. It never guesses CodeNotFound: whoever answers 404 without
// being the cloud does not know whether an instance is gone.
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

// Error is an answer of the cloud that is not a success.
type Error struct {
	Code    ErrorCode
	Message string
	// RetryAfter is how long the cloud asks to wait before the next call. 0:
	// it does not say.
	RetryAfter time.Duration
}

// ErrorBody is the JSON of an Error. For clients other than this one the
// Retry-After header says the same in whole seconds, rounded up.
type ErrorBody struct {
	Code       ErrorCode `json:"code"`
	Message    string    `json:"message"`
	RetryAfter Duration  `json:"retryAfter,omitempty"`
}

// Error gives code and message.
func (e *Error) Error() string { return string(e.Code) + ": " + e.Message }

// ConnectionError means that no usable answer came back: whether the call took
// effect is unknown. It unwraps to the cause, so that errors.Is finds
// context.DeadlineExceeded or syscall.ECONNREFUSED.
type ConnectionError struct {
	// Operation is the call that was attempted, such as "CreateInstance".
	Operation string
	Err       error
}

// Error names the operation and the cause.
func (e *ConnectionError) Error() string {
	return fmt.Sprintf("no answer from the cloud to %s: %v", e.Operation, e.Err)
}

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// CodeOf returns the code of the *Error in err's chain, and "" where there is
// none.
func CodeOf(err error) ErrorCode {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	return ""
}
