package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/gophercloud/gophercloud/v2"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// serviceError is an error from an OpenStack service.
type serviceError struct {
	status int
	// kind is Neutron's name of the error, such as OverQuota. Other services have no names.
	kind string
	// message is the text of the error. The driver recognizes errors by words in this text, because the services have
	// no error codes. The message is shown only for deletions, because other messages may repeat secrets from the
	// request.
	message string
	header  http.Header
}

// answerOf returns OpenStack's answer in the error, if any.
func answerOf(err error) (serviceError, bool) {
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		if a, ok := answerOf(again.ErrReauth); ok {
			return a, true
		}
		err = again.ErrOriginal
	}
	response, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return serviceError{}, false
	}
	a := serviceError{status: response.Actual, header: response.ResponseHeader}
	// Services wrap errors in an object with one key, such as "badRequest", "forbidden" or "NeutronError".
	var body map[string]json.RawMessage
	if json.Unmarshal(response.Body, &body) == nil {
		for _, raw := range body {
			var inner struct {
				Type    string `json:"type"`
				Message string `json:"message"`
			}
			if json.Unmarshal(raw, &inner) == nil && inner.Message != "" {
				a.kind, a.message = inner.Type, inner.Message
			}
		}
	} else {
		a.message = string(response.Body[:min(len(response.Body), 4<<10)]) // Glance returns HTML.
	}
	return a, true
}

// answerText returns OpenStack's message for a failed deletion, to follow the name of the resource, or an empty string.
// OpenStack's message contains no secrets, because a request for a deletion contains only an ID.
func answerText(err error) string {
	a, _ := answerOf(err)
	words := strings.FieldsFunc(a.message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// messageContains reports whether the message contains one of the lower-case words.
func (a serviceError) messageContains(words ...string) bool {
	text := strings.ToLower(a.message)
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// translate converts an error to an error with a canonical code and the driver's own message. The only text from
// OpenStack in this message is Neutron's name of the error.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var why string
	a, answered := answerOf(err)
	denied, isDenied := errors.AsType[*endpoints.DeniedError](err)
	switch {
	case answered:
		out.Code, why = a.classify()
		if out.Code == provider.Throttled || out.Code == provider.Unavailable {
			out.RetryAfter = httpapi.RetryAfter(a.header)
		}
	case isDenied:
		out.Code, why = provider.PermissionDenied, denied.Error()+"; "+allowAddress
	case httpapi.TooLong(err) != nil:
		out.Code, why = provider.Internal, httpapi.TooLong(err).Error()
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, why = provider.Canceled, "the call was cancelled"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		out.Code, why = provider.DeadlineExceeded, "OpenStack did not answer in time"
	default:
		// OpenStack may or may not have received the request.
		out.Code, why = provider.Unavailable, "OpenStack could not be reached, or its answer could not be read"
	}
	out.Message = attempted + ": " + why
	return out
}

// classify maps OpenStack's answers to canonical codes and messages.
// https://docs.openstack.org/api-guide/compute/faults.html
func (a serviceError) classify() (provider.Code, string) {
	switch {
	case a.status == http.StatusUnauthorized:
		return provider.Unauthenticated, "OpenStack does not accept the credentials"
	case a.overQuota():
		return provider.ResourceExhausted, "a quota of the project is used up" + a.kindSuffix()
	case a.kind == "IpAddressGenerationFailure" || a.kind == "NoMoreFixedIps" || a.messageContains("no more fixed ips",
		"no fixed ip addresses"):
		return provider.ResourceExhausted, "the network has no free address" + a.kindSuffix()
	case a.messageContains("no valid host was found"):
		return provider.ResourceExhausted, "no host has room for the server"
	// Older versions of Nova and Cinder limited the rate of calls themselves and answered with 413.
	case a.status == http.StatusTooManyRequests || a.status == http.StatusRequestEntityTooLarge:
		return provider.Throttled, "there were too many calls"
	case a.status == http.StatusForbidden:
		return provider.PermissionDenied, "the credentials do not allow the call" + a.kindSuffix()
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return provider.NotFound, "the resource does not exist" + a.kindSuffix()
	case a.status == http.StatusConflict:
		return provider.Aborted, "the call conflicts with another operation or with the state of the resource" + a.kindSuffix()
	case a.status == http.StatusRequestTimeout || a.status >= 500:
		return provider.Unavailable, "OpenStack is temporarily unavailable"
	case a.status >= 400:
		// InvalidArgument would be wrong, because the cause may be in OpenStack instead of the specification.
		return provider.FailedPrecondition, "OpenStack refuses the request" + a.kindSuffix()
	}
	return provider.Internal, "OpenStack's answer does not follow its API"
}

// overQuota reports whether a quota is exhausted. Then Nova answers with 403, Cinder with 413 and Neutron with 409.
func (a serviceError) overQuota() bool {
	switch a.status {
	case http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusConflict:
		return a.kind == "OverQuota" || a.messageContains("quota")
	}
	return false
}

// kindSuffix returns the name that Neutron gives to the error, in brackets. If the name contains characters other than
// letters and digits, the result is empty.
func (a serviceError) kindSuffix() string {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}
	if a.kind == "" || len(a.kind) > 80 || strings.ContainsFunc(a.kind, strange) {
		return ""
	}
	return " (" + a.kind + ")"
}

// isAbsent reports whether OpenStack answered that the resource does not exist.
func isAbsent(err error) bool {
	a, ok := answerOf(err)
	return ok && (a.status == http.StatusNotFound || a.status == http.StatusGone)
}

// isConflict reports whether OpenStack refused a call because the resource is in use, or because its state does not
// allow the call.
func isConflict(err error) bool {
	a, ok := answerOf(err)
	return ok && a.status == http.StatusConflict && !a.overQuota()
}

// createError converts an error of a creation. NotFound means that the request refers to a missing object. NotFound
// never means that the instance does not exist.
func createError(ctx context.Context, err error, attempted, field string) error {
	out := translate(ctx, err, attempted)
	e, ok := errors.AsType[*provider.Error](out)
	if !ok {
		return out
	}
	if e.Code == provider.NotFound {
		e.Code, e.Message = provider.FailedPrecondition, attempted+": an object to which the request refers does not exist"
	}
	if e.Code.Terminal() && e.Field == "" {
		e.Field = field
	}
	return e
}

// serverField returns the field that caused the refusal of a server. Nova answers with 400 to all missing or invalid
// values, and only the message differs.
func serverField(err error) string {
	a, ok := answerOf(err)
	if !ok || a.status != http.StatusBadRequest {
		return ""
	}
	for _, about := range []struct{ word, field string }{
		{"image", "image"}, {"key_name", "keyPair"}, {"keypair", "keyPair"}, {"availability zone", "availabilityZone"},
		{"flavor", "flavor"}, {"server group", "serverGroup"}, {"instance group", "serverGroup"}, {"volume", "volumes"},
		{"port", "ports"}, {"network", "ports"}, {"user_data", ""},
	} {
		if a.messageContains(about.word) {
			return about.field
		}
	}
	return ""
}
