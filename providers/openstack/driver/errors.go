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
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// answer is one of OpenStack's that is an error.
type answer struct {
	status int
	// kind is Neutron's name of the error, such as OverQuota; empty at the other services.
	kind string
	// message is for people. It is searched for words, because the services give no codes. It may repeat what was sent, so
	// only that of a deletion is shown.
	message string
	header  http.Header
}

// answerOf returns OpenStack's answer in an error, if there is one.
func answerOf(err error) (answer, bool) {
	if again, ok := errors.AsType[*gophercloud.ErrUnableToReauthenticate](err); ok {
		if a, ok := answerOf(again.ErrReauth); ok {
			return a, true
		}
		err = again.ErrOriginal
	}
	response, ok := errors.AsType[gophercloud.ErrUnexpectedResponseCode](err)
	if !ok {
		return answer{}, false
	}
	a := answer{status: response.Actual, header: response.ResponseHeader}
	// Every service wraps its error in an object with one key, such as "badRequest", "forbidden" or "NeutronError".
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
		a.message = string(response.Body[:min(len(response.Body), 4<<10)]) // Glance writes HTML.
	}
	return a, true
}

// inItsWords is what OpenStack has answered to a deletion, to be put behind the name of the resource; empty if it has
// given no reason. Such an answer repeats nothing secret: a deletion sends an ID only.
func inItsWords(err error) string {
	a, _ := answerOf(err)
	words := strings.FieldsFunc(a.message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// has reports whether the message has one of the words, in lower case.
func (a answer) has(words ...string) bool {
	text := strings.ToLower(a.message)
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// translate makes of an error one with a canonical code. The message is ours, but for Neutron's name of the error.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var why string
	a, answered := answerOf(err)
	switch {
	case answered:
		out.Code, why = a.meaning()
		if out.Code == provider.Throttled || out.Code == provider.Unavailable {
			out.RetryAfter = httpapi.RetryAfter(a.header)
		}
	case errors.Is(err, httpapi.ErrAnswerTooLong):
		out.Code, why = provider.Internal, httpapi.ErrAnswerTooLong.Error()
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, why = provider.Canceled, "the call was cancelled"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		out.Code, why = provider.DeadlineExceeded, "no answer came in time"
	default:
		// Whether it arrived nobody knows.
		out.Code, why = provider.Unavailable, "OpenStack could not be reached, or its answer not be read"
	}
	out.Message = attempted + ": " + why
	return out
}

// meaning is the one table from OpenStack's answers to our codes.
// https://docs.openstack.org/api-guide/compute/faults.html
func (a answer) meaning() (provider.Code, string) {
	switch {
	case a.status == http.StatusUnauthorized:
		return provider.Unauthenticated, "OpenStack does not accept the credentials"
	case a.overQuota():
		return provider.ResourceExhausted, "a quota of the project is used up" + a.named()
	case a.kind == "IpAddressGenerationFailure" || a.kind == "NoMoreFixedIps" || a.has("no more fixed ips",
		"no fixed ip addresses"):
		return provider.ResourceExhausted, "the network has no free address" + a.named()
	case a.has("no valid host was found"):
		return provider.ResourceExhausted, "no host has room for it"
	// Nova and Cinder wrote 413 for too many calls when they counted them themselves.
	case a.status == http.StatusTooManyRequests || a.status == http.StatusRequestEntityTooLarge:
		return provider.Throttled, "too many calls"
	case a.status == http.StatusForbidden:
		return provider.PermissionDenied, "the credentials may not do this" + a.named()
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return provider.NotFound, "there is no such resource" + a.named()
	case a.status == http.StatusConflict:
		return provider.Aborted, "it conflicts with what is there or under way" + a.named()
	case a.status == http.StatusRequestTimeout || a.status >= 500:
		return provider.Unavailable, "OpenStack does not serve"
	case a.status >= 400:
		// Nobody can say that a change of the specification would help.
		return provider.FailedPrecondition, "OpenStack refuses the request" + a.named()
	}
	return provider.Internal, "OpenStack's answer is not one of its API"
}

// overQuota reports whether a quota is used up. Nova answers that with 403, Cinder with 413 and Neutron with 409.
func (a answer) overQuota() bool {
	switch a.status {
	case http.StatusForbidden, http.StatusRequestEntityTooLarge, http.StatusConflict:
		return a.kind == "OverQuota" || a.has("quota")
	}
	return false
}

// named is Neutron's name of the error in brackets, if it looks like one.
func (a answer) named() string {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	}
	if a.kind == "" || len(a.kind) > 80 || strings.ContainsFunc(a.kind, strange) {
		return ""
	}
	return " (" + a.kind + ")"
}

// absent reports whether OpenStack has answered that there is no such resource.
func absent(err error) bool {
	a, ok := answerOf(err)
	return ok && (a.status == http.StatusNotFound || a.status == http.StatusGone)
}

// conflicts reports whether OpenStack has answered that a resource is in use or in another state.
func conflicts(err error) bool {
	a, ok := answerOf(err)
	return ok && a.status == http.StatusConflict && !a.overQuota()
}

// creating translates an error of a creation: what is missing is something that it refers to, never the instance.
func creating(ctx context.Context, err error, attempted, field string) error {
	out := translate(ctx, err, attempted)
	e, ok := errors.AsType[*provider.Error](out)
	if !ok {
		return out
	}
	if e.Code == provider.NotFound {
		e.Code, e.Message = provider.FailedPrecondition, attempted+": something that it refers to does not exist"
	}
	if e.Code.Terminal() && e.Field == "" {
		e.Field = field
	}
	return e
}

// serverField is what a refused creation of a server is about: Nova answers 400 for all that is missing or wrong, and
// only words distinguish them.
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
		if a.has(about.word) {
			return about.field
		}
	}
	return ""
}
