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
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// translate makes of the SDK's error one with a canonical code. The message is ours, but for Azure's error code: what
// Azure wrote beside that may repeat what it was sent.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var answer string
	response, refused := errors.AsType[*azcore.ResponseError](err)
	failed, noToken := errors.AsType[*azidentity.AuthenticationFailedError](err)
	switch {
	case refused:
		out.Code, answer = meaning(response)
		if out.Code == provider.Throttled {
			out.RetryAfter = retryAfter(response.RawResponse)
		}
	case noToken && failed.RawResponse != nil:
		out.Code, answer = signIn(failed.RawResponse.StatusCode)
		if out.Code == provider.Throttled {
			out.RetryAfter = retryAfter(failed.RawResponse)
		}
	case errors.Is(err, httpapi.ErrAnswerTooLong):
		// It was carried out, for all that is known.
		out.Code, answer = provider.Internal, httpapi.ErrAnswerTooLong.Error()
	case ctx.Err() != nil:
		out.Code, answer = ended(ctx)
	case provider.CodeOf(err) != provider.Unknown:
		out.Code, answer = provider.CodeOf(err), "no answer came in time"
	default:
		// Whether it arrived nobody knows.
		out.Code, answer = provider.Unavailable, "Azure could not be reached, or its answer not be read"
	}
	out.Message = attempted + ": " + answer
	return out
}

// ended is for a call whose context is over.
func ended(ctx context.Context) (provider.Code, string) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return provider.Canceled, "the call was cancelled"
	}
	return provider.DeadlineExceeded, "no answer came in time"
}

// signIn is for an answer of the identity platform to who asks for a token.
// https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow
func signIn(status int) (provider.Code, string) {
	switch {
	case status == http.StatusTooManyRequests:
		return provider.Throttled, "too many requests for tokens"
	case status >= 500 || status == http.StatusRequestTimeout:
		return provider.Unavailable, "the identity platform does not serve"
	}
	return provider.Unauthenticated, "the identity platform does not accept the credentials"
}

// meaning is the one table from Azure's answers to our codes. What is not in it by name goes by its status.
// InvalidArgument is only for what is wrong in the specification itself. What somebody repairs at Azure (a policy,
// terms, a registration, a resource that is missing) is FailedPrecondition, and so is every other 4xx: nobody can say
// that a change of the specification would help.
// https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/common-deployment-errors
// https://learn.microsoft.com/azure/virtual-machines/error-messages
func meaning(e *azcore.ResponseError) (provider.Code, string) {
	named := func(code provider.Code, what string) (provider.Code, string) {
		return code, what + " (" + azureCode(e.ErrorCode) + ")"
	}
	if e.StatusCode == http.StatusTooManyRequests {
		return named(provider.Throttled, "too many calls")
	}
	switch e.ErrorCode {
	case "AllocationFailed", "ZonalAllocationFailed", "OverconstrainedAllocationRequest",
		"OverconstrainedZonalAllocationRequest",
		"SkuNotAvailable", "SpotCapacityUnavailable", "CapacityReservationGroupFull", "NotAvailableForSubscription":
		return named(provider.ResourceExhausted, "Azure has no capacity for it at present")
	case "QuotaExceeded", "ResourceQuotaExceeded", "PublicIPCountLimitReached", "ResourceCountExceedsLimitDueToTemplate",
		"SubscriptionRequestsThrottled", "SubnetIsFull", "NetworkInterfaceCountLimitReached":
		return named(provider.ResourceExhausted, "a quota of the subscription, or the subnet, is used up")
	case "OperationNotAllowed":
		// The same code says that a quota would be exceeded and that a state does not allow the operation; only words tell
		// them apart. https://learn.microsoft.com/azure/azure-resource-manager/troubleshooting/error-resource-quota
		if strings.Contains(strings.ToLower(e.Error()), "quota") {
			return named(provider.ResourceExhausted, "a quota of the subscription is used up")
		}
		return named(provider.Aborted, "the resource's state does not allow it now")
	case "AuthorizationFailed", "LinkedAuthorizationFailed":
		return named(provider.PermissionDenied, "the credentials may not do this")
	case "RequestDisallowedByPolicy", "RequestDisallowedByAzure":
		return named(provider.FailedPrecondition, "a policy forbids it")
	case "ScopeLocked":
		return named(provider.FailedPrecondition, "a lock on the resource, its group or the subscription forbids it")
	case "MissingSubscriptionRegistration", "SubscriptionNotRegistered", "MissingRegistrationForLocation",
		"NoRegisteredProviderFound":
		return named(provider.FailedPrecondition, "the subscription is not registered for it")
	case "ReadOnlyDisabledSubscription", "SubscriptionDisabled", "DisabledSubscription":
		return named(provider.FailedPrecondition, "the subscription is disabled")
	case "PropertyChangeNotAllowed":
		return named(provider.AlreadyExists, "it exists with other properties")
	case "AnotherOperationInProgress", "OperationPreempted", "RetryableError", "ReferencedResourceNotProvisioned",
		"NicInUse",
		"NicReservedForAnotherVm", "DiskOperationNotAllowed", "InUseNetworkInterfaceCannotBeDeleted",
		"PublicIPAddressCannotBeDeleted", "PublicIPAddressInUse":
		return named(provider.Aborted, "another operation is in its way")
	case "MarketplacePurchaseEligibilityFailed", "ResourcePurchaseValidationFailed", "VMMarketplaceInvalidInput":
		return named(provider.FailedPrecondition,
			"the image has a purchase plan that was not named, or whose terms nobody has accepted")
	case "PlatformImageNotFound", "ImageNotFound", "GalleryImageNotFound":
		return named(provider.FailedPrecondition, "there is no such image")
	case "ResourceGroupNotFound", "InvalidResourceReference", "LinkedInvalidPropertyId", "SubscriptionNotFound",
		"InvalidSubscriptionId":
		return named(provider.FailedPrecondition, "something that it refers to does not exist")
	case "InvalidParameter", "InvalidParameterValue", "InvalidRequestContent", "InvalidRequestFormat", "InvalidLocation",
		"LocationNotAvailableForResourceType",
		"InvalidTagNameCharacters", "InvalidTagValueLength", "InvalidTagsCount", "DuplicateTagName":
		// The same codes say that a feature has to be enabled first; only words inform them apart.
		// https://learn.microsoft.com/azure/virtual-machines/linux/disks-enable-host-based-encryption-cli
		if strings.Contains(strings.ToLower(e.Error()), "feature is not enabled") {
			return named(provider.FailedPrecondition, "a feature that it needs is not enabled for the subscription")
		}
		return named(provider.InvalidArgument, "Azure does not accept a value")
	}
	switch {
	case e.StatusCode == http.StatusUnauthorized:
		return named(provider.Unauthenticated, "Azure does not accept the credentials")
	case e.StatusCode == http.StatusForbidden:
		return named(provider.PermissionDenied, "the credentials may not do this")
	case e.StatusCode == http.StatusNotFound:
		return named(provider.NotFound, "there is no such resource")
	case e.StatusCode == http.StatusConflict, e.StatusCode == http.StatusPreconditionFailed:
		return named(provider.Aborted, "it conflicts with what is there or under way")
	case e.StatusCode == http.StatusRequestTimeout || e.StatusCode >= 500:
		return named(provider.Unavailable, "Azure does not serve")
	case e.StatusCode >= 400:
		return named(provider.FailedPrecondition, "Azure refuses the request")
	}
	// An operation that failed after it was accepted comes with the status of the answer that tells so.
	return named(provider.Internal, "the operation failed")
}

// inItsWords is Azure's answer to a deletion that it does not carry out now, to be put behind the name of the resource;
// empty for any other. Such an answer repeats nothing secret: a deletion sends a name only.
func inItsWords(err error) string {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	if !ok || absent(err) {
		return ""
	}
	said := azureCode(response.ErrorCode)
	var body struct {
		Error struct{ Message string }
	}
	if response.RawResponse != nil {
		if raw, err := runtime.Payload(response.RawResponse); err == nil && json.Unmarshal(raw, &body) == nil {
			said += " " + body.Error.Message
		}
	}
	words := strings.FieldsFunc(said, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// azureCode is a code as Azure's answer has it, if it looks like one.
func azureCode(code string) string {
	strange := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_'
	}
	if code == "" || len(code) > 80 || strings.ContainsFunc(code, strange) {
		return "without a code"
	}
	return code
}

// retryAfter is what the answer asks for, zero where it does not.
// https://learn.microsoft.com/azure/azure-resource-manager/management/request-limits-and-throttling
func retryAfter(r *http.Response) time.Duration {
	if r == nil {
		return 0
	}
	return httpapi.RetryAfter(r.Header)
}

// codeOf is Azure's error code, empty where there is none.
func codeOf(err error) string {
	if response, ok := errors.AsType[*azcore.ResponseError](err); ok {
		return response.ErrorCode
	}
	return ""
}

// absent reports whether Azure has answered that the resource, or the group that it would be in, does not exist.
func absent(err error) bool {
	response, ok := errors.AsType[*azcore.ResponseError](err)
	return ok && response.StatusCode == http.StatusNotFound && response.ErrorCode != "SubscriptionNotFound"
}

// refersToNothing reports whether Azure has answered that something which the request names does not exist.
func refersToNothing(err error) bool {
	code := codeOf(err)
	return absent(err) || code == "InvalidResourceReference" || code == "LinkedInvalidPropertyId"
}

// withField says which field of providerSpec an error is about.
func withField(err error, field string) error {
	if e, ok := errors.AsType[*provider.Error](err); ok && e.Field == "" && e.Code.Terminal() {
		about := *e
		about.Field = field
		return &about
	}
	return err
}
