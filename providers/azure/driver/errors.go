package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
	"unicode"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// translate converts an error of the SDK. The message contains only Azure's error code, because the rest of the answer
// may repeat the request.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var answer string
	response, refused := errors.AsType[*azcore.ResponseError](err)
	failed, noToken := errors.AsType[*azidentity.AuthenticationFailedError](err)
	denied, isDenied := errors.AsType[*endpoints.DeniedError](err)
	switch {
	case refused:
		out.Code, answer = classify(response)
		if out.Code == provider.Throttled {
			out.RetryAfter = retryAfter(response.RawResponse)
		}
	case noToken && failed.RawResponse != nil:
		out.Code, answer = signInError(failed.RawResponse.StatusCode)
		if out.Code == provider.Throttled {
			out.RetryAfter = retryAfter(failed.RawResponse)
		}
	case isDenied:
		out.Code, answer = provider.PermissionDenied, denied.Error()+
			"; to allow connections to it, set --azure-allow-address"
	case httpapi.TooLong(err) != nil:
		// Azure may have carried out the request.
		out.Code, answer = provider.Internal, httpapi.TooLong(err).Error()
	case ctx.Err() != nil:
		out.Code, answer = contextError(ctx)
	case provider.CodeOf(err) != provider.Unknown:
		out.Code, answer = provider.CodeOf(err), "Azure did not answer in time"
	default:
		// Azure may or may not have received the request.
		out.Code, answer = provider.Unavailable, "Azure could not be reached, or its answer could not be read"
	}
	out.Message = attempted + ": " + answer
	return out
}

func contextError(ctx context.Context) (provider.Code, string) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return provider.Canceled, "the call was canceled"
	}
	return provider.DeadlineExceeded, "Azure did not answer in time"
}

// signInError maps a response of the identity platform to a token request.
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
func signInError(status int) (provider.Code, string) {
	switch {
	case status == http.StatusTooManyRequests:
		return provider.Throttled, "too many requests for tokens"
	case status >= 500 || status == http.StatusRequestTimeout:
		return provider.Unavailable, "the identity platform is not available"
	}
	return provider.Unauthenticated, "the identity platform does not accept the credentials"
}

// classify maps Azure's error codes to provider codes. For unknown error codes, the HTTP status decides.
// InvalidArgument is only for errors in the specification itself. FailedPrecondition is for causes that an
// administrator fixes in Azure: policies, terms, registrations, missing resources. All other 4xx responses are also
// FailedPrecondition, because a change of the specification may not help.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
// https://learn.microsoft.com/azure/virtual-machines/error-messages
func classify(e *azcore.ResponseError) (provider.Code, string) {
	named := func(code provider.Code, text string) (provider.Code, string) {
		return code, text + " (" + azureCode(e.ErrorCode) + ")"
	}
	if e.StatusCode == http.StatusTooManyRequests {
		return named(provider.Throttled, "too many calls")
	}
	switch e.ErrorCode {
	case "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
		"OverconstrainedZonalAllocationRequest",
		"SkuNotAvailable", "SpotCapacityUnavailable", "CapacityReservationGroupFull", "NotAvailableForSubscription":
		return named(provider.ResourceExhausted, "Azure has no capacity for this VM size at present")
	case "QuotaExceeded", "ResourceQuotaExceeded", "PublicIPCountLimitReached", "ResourceCountExceedsLimitDueToTemplate",
		"SubscriptionRequestsThrottled", "SubnetIsFull", "NetworkInterfaceCountLimitReached":
		return named(provider.ResourceExhausted, "a quota of the subscription, or the subnet, is used up")
	case "OperationNotAllowed":
		// Azure uses this code for an exceeded quota, and for operations that the state of the resource does not allow.
		// Only the text differs.
		// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota
		if strings.Contains(strings.ToLower(e.Error()), "quota") {
			return named(provider.ResourceExhausted, "a quota of the subscription is used up")
		}
		return named(provider.Aborted, "the state of the resource does not allow the operation now")
	case "AuthorizationFailed", "LinkedAuthorizationFailed":
		return named(provider.PermissionDenied, "the credentials do not have the permission")
	case "RequestDisallowedByPolicy", "RequestDisallowedByAzure":
		return named(provider.FailedPrecondition, "a policy forbids the request")
	case "ScopeLocked":
		return named(provider.FailedPrecondition, "a lock on the resource, its group or the subscription forbids the request")
	case "MissingSubscriptionRegistration", "SubscriptionNotRegistered", "MissingRegistrationForLocation",
		"NoRegisteredProviderFound":
		return named(provider.FailedPrecondition, "a resource provider is not registered in the subscription")
	case "ReadOnlyDisabledSubscription", "SubscriptionDisabled", "DisabledSubscription":
		return named(provider.FailedPrecondition, "the subscription is disabled")
	case "PropertyChangeNotAllowed":
		return named(provider.AlreadyExists, "the resource exists with other properties")
	case "AnotherOperationInProgress", "OperationPreempted", "RetryableError", "ReferencedResourceNotProvisioned",
		"NicInUse",
		"NicReservedForAnotherVm", "DiskOperationNotAllowed", "InUseNetworkInterfaceCannotBeDeleted",
		"PublicIPAddressCannotBeDeleted", "PublicIPAddressInUse":
		return named(provider.Aborted, "another operation or resource blocks the request")
	case "MarketplacePurchaseEligibilityFailed", "ResourcePurchaseValidationFailed", "VMMarketplaceInvalidInput":
		return named(provider.FailedPrecondition,
			"the image has a purchase plan that the class does not name, or whose terms are not accepted")
	case "PlatformImageNotFound", "ImageNotFound", "GalleryImageNotFound":
		return named(provider.FailedPrecondition, "the image does not exist")
	case "ResourceGroupNotFound", "InvalidResourceReference", "LinkedInvalidPropertyId", "SubscriptionNotFound",
		"InvalidSubscriptionId":
		return named(provider.FailedPrecondition, "a resource that the request refers to does not exist")
	case "InvalidParameter", "InvalidParameterValue", "InvalidRequestContent", "InvalidRequestFormat", "InvalidLocation",
		"LocationNotAvailableForResourceType",
		"InvalidTagNameCharacters", "InvalidTagValueLength", "InvalidTagsCount", "DuplicateTagName":
		// Azure also uses these codes for features that must be enabled first. Only the text differs.
		// https://learn.microsoft.com/azure/virtual-machines/linux/disks-enable-host-based-encryption-cli
		if strings.Contains(strings.ToLower(e.Error()), "feature is not enabled") {
			return named(provider.FailedPrecondition, "a required feature is not enabled for the subscription")
		}
		return named(provider.InvalidArgument, "Azure does not accept a value")
	}
	switch {
	case e.StatusCode == http.StatusUnauthorized:
		return named(provider.Unauthenticated, "Azure does not accept the credentials")
	case e.StatusCode == http.StatusForbidden:
		return named(provider.PermissionDenied, "the credentials do not have the permission")
	case e.StatusCode == http.StatusNotFound:
		return named(provider.NotFound, "the resource does not exist")
	case e.StatusCode == http.StatusConflict, e.StatusCode == http.StatusPreconditionFailed:
		return named(provider.Aborted, "the request conflicts with the state of a resource or with another operation")
	case e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500:
		return named(provider.Unavailable, "Azure is not available")
	case e.StatusCode >= 400:
		return named(provider.FailedPrecondition, "Azure refuses the request")
	}
	// The HTTP status of an accepted operation that failed later is below 400.
	return named(provider.Internal, "the operation failed")
}

// azureAnswer returns Azure's reason for refusing to delete a resource, such as ": ScopeLocked". For other errors, the
// result is empty. The caller appends the result to the name of the resource. A deletion sends only a name, so the
// answer contains no secret.
func azureAnswer(err error) string {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || isAbsent(err) {
		return ""
	}
	text := azureCode(response.ErrorCode)
	var body struct {
		Error struct{ Message string }
	}
	if response.RawResponse != nil {
		if raw, err := runtime.Payload(response.RawResponse); err == nil && json.Unmarshal(raw, &body) == nil {
			text += " " + body.Error.Message
		}
	}
	words := strings.FieldsFunc(text, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// azureCode returns only texts in the format of Azure error codes, so that messages contain no other text of Azure.
func azureCode(code string) string {
	invalid := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_'
	}
	if code == "" || len(code) > 80 || strings.ContainsFunc(code, invalid) {
		return "without a code"
	}
	return code
}

// retryAfter returns the wait time in the response, or zero.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	return httpapi.RetryAfter(r.Header)
}

func codeOf(err error) string {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return response.ErrorCode
	}
	return ""
}

// isAbsent reports whether the resource or its resource group does not exist.
func isAbsent(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && response.StatusCode == http.StatusNotFound && response.ErrorCode != "SubscriptionNotFound"
}

// isDanglingReference reports whether the request refers to a missing resource.
func isDanglingReference(err error) bool {
	code := codeOf(err)
	return isAbsent(err) || code == "InvalidResourceReference" || code == "LinkedInvalidPropertyId"
}

// withField adds the field of the providerSpec that caused the error.
func withField(err error, field string) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Field == "" && e.Code.Terminal() {
		out := *e
		out.Field = field
		return &out
	}
	return err
}
