package driver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// answer is an error of the SDK's, made of an answer of Azure's.
func answer(status int, code, message string, header ...string) error {
	request, _ := http.NewRequest(http.MethodPut, "https://management.azure.com/x", nil)
	response := &http.Response{
		StatusCode: status, Status: http.StatusText(status), Header: http.Header{"Content-Type": {"application/json"}},
		Request: request,
		Body:    io.NopCloser(bytes.NewReader([]byte(`{"error":{"code":"` + code + `","message":"` + message + `"}}`))),
	}
	for i := 0; i < len(header); i += 2 {
		response.Header.Set(header[i], header[i+1])
	}
	return runtime.NewResponseError(response)
}

func TestEveryAnswerHasACode(t *testing.T) {
	const hidden = "what was sent"
	for _, tc := range []struct {
		status int
		code   string
		text   string
		want   provider.Code
	}{
		{400, "InvalidParameter", hidden, provider.InvalidArgument},
		{401, "ExpiredAuthenticationToken", hidden, provider.Unauthenticated},
		{403, "AuthorizationFailed", hidden, provider.PermissionDenied},
		{403, "RequestDisallowedByPolicy", hidden, provider.FailedPrecondition},
		{403, "Other", hidden, provider.PermissionDenied},
		{404, "ResourceNotFound", hidden, provider.NotFound},
		{404, "SubscriptionNotFound", hidden, provider.FailedPrecondition},
		{404, "PlatformImageNotFound", hidden, provider.FailedPrecondition},
		{408, "", hidden, provider.Unavailable},
		{409, "OperationNotAllowed", "exceeding approved Cores Quota", provider.ResourceExhausted},
		{409, "OperationNotAllowed", hidden, provider.Aborted},
		{409, "SkuNotAvailable", hidden, provider.ResourceExhausted},
		{409, "Conflict", hidden, provider.Aborted},
		{409, "PropertyChangeNotAllowed", hidden, provider.AlreadyExists},
		{400, "SubnetIsFull", hidden, provider.ResourceExhausted},
		{400, "NicInUse", hidden, provider.Aborted},
		{400, "PublicIPCountLimitReached", hidden, provider.ResourceExhausted},
		{412, "PreconditionFailed", hidden, provider.Aborted},
		{429, "OperationNotAllowed", "quota of calls", provider.Throttled},
		{500, "InternalServerError", hidden, provider.Unavailable},
		{503, "", hidden, provider.Unavailable},
		{200, "AllocationFailed", hidden, provider.ResourceExhausted},
		{200, "Strange", hidden, provider.Internal},
		{400, "InvalidParameter", "The 'Microsoft.Compute/EncryptionAtHost' feature is not enabled for this subscription",
			provider.FailedPrecondition},
		{400, "LocationNotAvailableForResourceType", hidden, provider.InvalidArgument},
		{400, "InvalidRequestContent", hidden, provider.InvalidArgument},
		{400, "InvalidTagValueLength", hidden, provider.InvalidArgument},
		{400, "InvalidResourceReference", hidden, provider.FailedPrecondition},
		{400, "LinkedInvalidPropertyId", hidden, provider.FailedPrecondition},
		{400, "VMMarketplaceInvalidInput", hidden, provider.FailedPrecondition},
		{400, "MarketplacePurchaseEligibilityFailed", hidden, provider.FailedPrecondition},
		{400, "NoRegisteredProviderFound", hidden, provider.FailedPrecondition},
		{400, "BadRequest", hidden, provider.FailedPrecondition},
		{400, "SomethingNew", hidden, provider.FailedPrecondition},
		{400, "", hidden, provider.FailedPrecondition},
		{403, "AuthorizationFailed", hidden, provider.PermissionDenied},
		{403, "LinkedAuthorizationFailed", hidden, provider.PermissionDenied},
		{403, "RequestDisallowedByAzure", hidden, provider.FailedPrecondition},
		{404, "GalleryImageNotFound", hidden, provider.FailedPrecondition},
		{404, "ResourceGroupNotFound", hidden, provider.FailedPrecondition},
		{405, "", hidden, provider.FailedPrecondition},
		{409, "MissingSubscriptionRegistration", hidden, provider.FailedPrecondition},
		{409, "ScopeLocked", hidden, provider.FailedPrecondition},
		{409, "ReadOnlyDisabledSubscription", hidden, provider.FailedPrecondition},
		{409, "QuotaExceeded", hidden, provider.ResourceExhausted},
		{418, "a code with spaces", hidden, provider.FailedPrecondition},
		{200, "RequestDisallowedByPolicy", hidden, provider.FailedPrecondition},
	} {
		err := translate(context.Background(), answer(tc.status, tc.code, tc.text), "do it")
		if provider.CodeOf(err) != tc.want {
			t.Errorf("%d %s: %v, want %s", tc.status, tc.code, err, tc.want)
		}
		if strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), "do it: ") {
			t.Errorf("%d %s: the message is %q", tc.status, tc.code, err)
		}
	}
	done, cancel := context.WithCancel(context.Background())
	cancel()
	for want, err := range map[provider.Code]error{
		provider.Unavailable:      translate(context.Background(), errors.New("connection refused"), "x"),
		provider.Canceled:         translate(done, errors.New("whatever"), "x"),
		provider.DeadlineExceeded: translate(context.Background(), context.DeadlineExceeded, "x"),
		provider.InvalidArgument:  translate(done, provider.InvalidField("a", "b"), "x"),
	} {
		if provider.CodeOf(err) != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestRetryAfterIsReadInBothForms(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "99999999": 10 * time.Minute,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
	} {
		err := translate(context.Background(), answer(429, "TooManyRequests", "", "Retry-After", header), "x")
		if got := provider.RetryAfter(err); got != want {
			t.Errorf("%q: %s, want %s", header, got, want)
		}
	}
	later := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	if got := provider.RetryAfter(translate(context.Background(), answer(429, "", "", "Retry-After", later),
		"x")); got < 50*time.Second || got > time.Minute {
		t.Errorf("%q: %s", later, got)
	}
}

// A creation is reported apart from a lookup: what it lacks is something that it refers to, never the instance.
func TestWhatACreationRefersToAndIsNotThere(t *testing.T) {
	for code, field := range map[string]string{"ResourceGroupNotFound": "resourceGroup", "PlatformImageNotFound": "image",
		"ResourceNotFound": "networkInterfaces", "NotFound": "networkInterfaces"} {
		err := creating(context.Background(), answer(404, code, "what was sent"), "create it", "networkInterfaces")
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Code != provider.FailedPrecondition || e.Field != field {
			t.Errorf("%s: %v, want FailedPrecondition about %s", code, err, field)
		}
	}
}

func TestAnAnswerThatIsTooLongMayHaveTakenEffect(t *testing.T) {
	err := translate(context.Background(), httpapi.ErrAnswerTooLong, "list virtual machines")
	if provider.CodeOf(err) != provider.Internal ||
		!strings.Contains(err.Error(), "list virtual machines: response is longer than 32 MiB") {
		t.Errorf("got %v", err)
	}
}
