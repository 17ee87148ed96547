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

// answer returns the error with which the SDK reports that Azure responded with this status, code and message.
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

func TestTranslateReturnsCodeForEveryResponse(t *testing.T) {
	const private = "what was sent"
	for _, tc := range []struct {
		status int
		code   string
		text   string
		want   provider.Code
	}{
		{400, "InvalidParameter", private, provider.InvalidArgument},
		{401, "ExpiredAuthenticationToken", private, provider.Unauthenticated},
		{403, "AuthorizationFailed", private, provider.PermissionDenied},
		{403, "RequestDisallowedByPolicy", private, provider.FailedPrecondition},
		{403, "Other", private, provider.PermissionDenied},
		{404, "ResourceNotFound", private, provider.NotFound},
		{404, "SubscriptionNotFound", private, provider.FailedPrecondition},
		{404, "PlatformImageNotFound", private, provider.FailedPrecondition},
		{408, "", private, provider.Unavailable},
		{409, "OperationNotAllowed", "exceeding approved Cores Quota", provider.ResourceExhausted},
		{409, "OperationNotAllowed", private, provider.Aborted},
		{409, "SkuNotAvailable", private, provider.ResourceExhausted},
		{409, "Conflict", private, provider.Aborted},
		{409, "PropertyChangeNotAllowed", private, provider.AlreadyExists},
		{400, "SubnetIsFull", private, provider.ResourceExhausted},
		{400, "NicInUse", private, provider.Aborted},
		{400, "PublicIPCountLimitReached", private, provider.ResourceExhausted},
		{412, "PreconditionFailed", private, provider.Aborted},
		{429, "OperationNotAllowed", "quota of calls", provider.Throttled},
		{500, "InternalServerError", private, provider.Unavailable},
		{503, "", private, provider.Unavailable},
		{200, "AllocationFailed", private, provider.ResourceExhausted},
		{200, "Strange", private, provider.Internal},
		{400, "InvalidParameter", "The 'Microsoft.Compute/EncryptionAtHost' feature is not enabled for this subscription",
			provider.FailedPrecondition},
		{400, "LocationNotAvailableForResourceType", private, provider.InvalidArgument},
		{400, "InvalidRequestContent", private, provider.InvalidArgument},
		{400, "InvalidTagValueLength", private, provider.InvalidArgument},
		{400, "InvalidResourceReference", private, provider.FailedPrecondition},
		{400, "LinkedInvalidPropertyId", private, provider.FailedPrecondition},
		{400, "VMMarketplaceInvalidInput", private, provider.FailedPrecondition},
		{400, "MarketplacePurchaseEligibilityFailed", private, provider.FailedPrecondition},
		{400, "NoRegisteredProviderFound", private, provider.FailedPrecondition},
		{400, "BadRequest", private, provider.FailedPrecondition},
		{400, "SomethingNew", private, provider.FailedPrecondition},
		{400, "", private, provider.FailedPrecondition},
		{403, "AuthorizationFailed", private, provider.PermissionDenied},
		{403, "LinkedAuthorizationFailed", private, provider.PermissionDenied},
		{403, "RequestDisallowedByAzure", private, provider.FailedPrecondition},
		{404, "GalleryImageNotFound", private, provider.FailedPrecondition},
		{404, "ResourceGroupNotFound", private, provider.FailedPrecondition},
		{405, "", private, provider.FailedPrecondition},
		{409, "MissingSubscriptionRegistration", private, provider.FailedPrecondition},
		{409, "ScopeLocked", private, provider.FailedPrecondition},
		{409, "ReadOnlyDisabledSubscription", private, provider.FailedPrecondition},
		{409, "QuotaExceeded", private, provider.ResourceExhausted},
		{418, "a code with spaces", private, provider.FailedPrecondition},
		{200, "RequestDisallowedByPolicy", private, provider.FailedPrecondition},
	} {
		err := translate(context.Background(), answer(tc.status, tc.code, tc.text), "do it")
		if provider.CodeOf(err) != tc.want {
			t.Errorf("%d %s: got %v, want %s", tc.status, tc.code, err, tc.want)
		}
		if strings.Contains(err.Error(), tc.text) || !strings.Contains(err.Error(), "do it: ") {
			t.Errorf("%d %s: got the message %q, want no text of Azure in it", tc.status, tc.code, err)
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

func TestRetryAfterAcceptsSecondsAndDates(t *testing.T) {
	for header, want := range map[string]time.Duration{
		"": 0, "7": 7 * time.Second, "-3": 0, "soon": 0, "99999999": 10 * time.Minute,
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): 0,
	} {
		err := translate(context.Background(), answer(429, "TooManyRequests", "", "Retry-After", header), "x")
		if got := provider.RetryAfter(err); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
	later := time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)
	if got := provider.RetryAfter(translate(context.Background(), answer(429, "", "", "Retry-After", later),
		"x")); got < 50*time.Second || got > time.Minute {
		t.Errorf("%q: got %s, want about a minute", later, got)
	}
}

// Create must never return NotFound if the request refers to a missing resource. NotFound would mean that the instance
// is missing.
func TestCreateErrorNamesMissingReference(t *testing.T) {
	for code, field := range map[string]string{"ResourceGroupNotFound": "resourceGroup", "PlatformImageNotFound": "image",
		"ResourceNotFound": "networkInterfaces", "NotFound": "networkInterfaces"} {
		err := createError(context.Background(), answer(404, code, "what was sent"), "create it", "networkInterfaces")
		if e, ok := errors.AsType[*provider.Error](err); !ok || e.Code != provider.FailedPrecondition || e.Field != field {
			t.Errorf("%s: got %v, want FailedPrecondition about %s", code, err, field)
		}
	}
}

func TestTooLongResponseIsInternalError(t *testing.T) {
	err := translate(context.Background(), httpapi.ErrAnswerTooLong, "list virtual machines")
	if provider.CodeOf(err) != provider.Internal ||
		!strings.Contains(err.Error(), "list virtual machines: response is longer than 32 MiB") {
		t.Errorf("got %v, want Internal", err)
	}
}
