package driver

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gophercloud/gophercloud/v2"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

func refused(status int, body string, header ...string) error {
	e := gophercloud.ErrUnexpectedResponseCode{Actual: status, Body: []byte(body), ResponseHeader: http.Header{}}
	for i := 0; i < len(header); i += 2 {
		e.ResponseHeader.Set(header[i], header[i+1])
	}
	return e
}

// The response bodies were recorded from Nova 26, Neutron 21 and Cinder 21.
func TestErrorAnswersHaveCodes(t *testing.T) {
	for body, test := range map[string]struct {
		status int
		want   provider.Code
	}{
		`{"forbidden": {"code": 403, "message": "Quota exceeded for instances: Requested 1, but already used 10 of 10 instances"}}`: {403,
			provider.ResourceExhausted},
		`{"forbidden": {"code": 403, "message": "Policy doesn't allow os_compute_api:servers:create to be performed."}}`: {403,
			provider.PermissionDenied},
		`{"NeutronError": {"type": "OverQuota", "message": "Quota exceeded for resources: ['port'].", "detail": ""}}`: {409,
			provider.ResourceExhausted},
		`{"NeutronError": {"type": "IpAddressGenerationFailure", "message": "No more IP addresses available on network x.", "detail": ""}}`: {
			409, provider.ResourceExhausted},
		`{"NeutronError": {"type": "PortInUse", "message": "Unable to complete operation on port", "detail": ""}}`: {409,
			provider.Aborted},
		`{"overLimit": {"code": 413, "message": "VolumeSizeExceedsAvailableQuota: Requested volume or snapshot exceeds allowed gigabytes quota.", "retryAfter": "0"}}`: {
			413, provider.ResourceExhausted},
		`{"overLimit": {"code": 413, "message": "This request was rate-limited."}}`:  {413, provider.Throttled},
		`{"badRequest": {"code": 400, "message": "Can not find requested image"}}`:   {400, provider.FailedPrecondition},
		`{"itemNotFound": {"code": 404, "message": "Instance could not be found."}}`: {404, provider.NotFound},
		`{"conflictingRequest": {"code": 409, "message": "Cannot 'delete' instance while it is in vm_state building"}}`: {409,
			provider.Aborted},
		`{"computeFault": {"code": 500, "message": "Unexpected API Error."}}`: {500, provider.Unavailable},
		`<html>Service Unavailable</html>`:                                    {503, provider.Unavailable},
		`{"error": {"code": 401, "message": "The request you have made requires authentication."}}`: {401,
			provider.Unauthenticated},
		``:                               {429, provider.Throttled},
		`not JSON, and no status at all`: {302, provider.Internal},
		`{"a": 1, "b": [], "c": "d"}`:    {418, provider.FailedPrecondition},
	} {
		err := translate(context.Background(), refused(test.status, body), "do it")
		if provider.CodeOf(err) != test.want {
			t.Errorf("%d %s: got %v, want %s", test.status, body, err, test.want)
		}
		for _, word := range []string{"requested", "instances", "rate-limited", "html", "policy"} {
			if strings.Contains(strings.ToLower(err.Error()), word) {
				t.Errorf("the error contains OpenStack's message: %v", err)
			}
		}
	}
}

func TestErrorsWithoutAnswerHaveCodes(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		err  error
		want provider.Code
	}{
		"no connection":      {context.Background(), errors.New("connection refused"), provider.Unavailable},
		"cancelled":          {canceled, errors.New("whatever"), provider.Canceled},
		"deadline":           {late, errors.New("whatever"), provider.DeadlineExceeded},
		"client timeout":     {context.Background(), context.DeadlineExceeded, provider.DeadlineExceeded},
		"answer too long":    {context.Background(), httpapi.ErrAnswerTooLong, provider.Internal},
		"driver's own error": {context.Background(), provider.InvalidField("a", "b"), provider.InvalidArgument},
	} {
		if got := provider.CodeOf(translate(test.ctx, test.err, "do it")); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}

func TestFailedSignInDeterminesCode(t *testing.T) {
	for status, want := range map[int]provider.Code{401: provider.Unauthenticated, 503: provider.Unavailable} {
		err := error(&gophercloud.ErrUnableToReauthenticate{ErrOriginal: refused(401, ""), ErrReauth: refused(status, "")})
		if got := provider.CodeOf(translate(context.Background(), err, "do it")); got != want {
			t.Errorf("%d: got %s, want %s", status, got, want)
		}
	}
}

func TestRetryAfterComesFromTheAnswer(t *testing.T) {
	for _, status := range []int{413, 429, 503} {
		err := translate(context.Background(), refused(status, "", "Retry-After", "7"), "do it")
		if provider.RetryAfter(err) != 7*time.Second {
			t.Errorf("%d: got %s, want 7s", status, provider.RetryAfter(err))
		}
	}
}

// Nova answers with 400 if any referenced object is missing.
func TestRefusedServerHasField(t *testing.T) {
	for message, field := range map[string]string{
		"Can not find requested image": "image", "Image abc could not be found.": "image",
		"Invalid key_name provided.":                               "keyPair",
		"The requested availability zone is not available":         "availabilityZone",
		"Flavor's disk is too small for requested image.":          "image",
		"Flavor x could not be found.":                             "flavor",
		"Port 1 not usable":                                        "ports",
		"Network x could not be found.":                            "ports",
		"Block Device Mapping is Invalid: failed to get volume x.": "volumes",
	} {
		err := refused(400, `{"badRequest": {"code": 400, "message": "`+message+`"}}`)
		e, ok := errors.AsType[*provider.Error](createError(context.Background(), err, "create server", serverField(err)))
		if !ok || e.Code != provider.FailedPrecondition || e.Field != field {
			t.Errorf("%s: got %v, want FailedPrecondition with the field %s", message, e, field)
		}
	}
}
