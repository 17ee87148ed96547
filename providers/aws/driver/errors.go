package driver

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"strings"

	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/smithy-go"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// rule is the meaning of an error code of AWS.
type rule struct {
	code provider.Code
	// text says what is wrong and what to do.
	text string
	// field is the field of the providerSpec that causes the error, or empty.
	field string
}

// rules are the error codes of the actions that the driver uses. InvalidArgument is only for errors in the
// specification itself. FailedPrecondition is for causes that an administrator fixes in AWS.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/errors-overview.html
// https://docs.aws.amazon.com/STS/latest/APIReference/CommonErrors.html
func rules() map[string]rule {
	throttled := rule{provider.Throttled, "too many calls in the account and region", ""}
	unauthenticated := rule{provider.Unauthenticated, "AWS does not accept the credentials; update the Secret", ""}
	expired := rule{provider.Unauthenticated,
		"the credentials have expired, or the clock of this process is wrong", ""}
	denied := rule{provider.PermissionDenied, "the credentials do not have the permission", ""}
	noCapacity := rule{provider.ResourceExhausted,
		"AWS has no capacity for this instance type in the zone at present", ""}
	unavailable := rule{provider.Unavailable, "AWS is not available", ""}
	conflict := rule{provider.Aborted, "the request conflicts with the state of a resource or with another request", ""}
	return map[string]rule{
		"RequestLimitExceeded": throttled, "Throttling": throttled, "ThrottlingException": throttled,
		"RequestThrottled": throttled, "EC2ThrottledException": throttled, "TooManyRequestsException": throttled,

		"AuthFailure": unauthenticated, "InvalidClientTokenId": unauthenticated, "SignatureDoesNotMatch": unauthenticated,
		"UnrecognizedClientException": unauthenticated, "MissingAuthenticationToken": unauthenticated,
		"InvalidAccessKeyId": unauthenticated, "InvalidIdentityToken": unauthenticated,
		"IDPRejectedClaim": unauthenticated, "InvalidSignatureException": unauthenticated,
		"RequestExpired": expired, "ExpiredToken": expired, "ExpiredTokenException": expired,
		"OptInRequired": {provider.FailedPrecondition,
			"the account must subscribe to the image or enable the region first; accept the terms in AWS Marketplace", ""},
		"Blocked":             {provider.FailedPrecondition, "AWS has blocked the account; contact AWS Support", ""},
		"PendingVerification": {provider.ResourceExhausted, "AWS is still verifying the account", ""},

		"UnauthorizedOperation": denied, "AccessDenied": denied, "AccessDeniedException": denied,
		"Client.UnauthorizedOperation": denied,

		"InsufficientInstanceCapacity": noCapacity, "InsufficientHostCapacity": noCapacity,
		"InsufficientReservedInstanceCapacity": noCapacity, "InsufficientCapacity": noCapacity,
		"SpotMaxPriceTooLow": {provider.ResourceExhausted,
			"the maximum price is lower than the current Spot price; raise spot.maxPrice or wait", "spot.maxPrice"},
		"ReservationCapacityExceeded": {provider.ResourceExhausted,
			"the capacity reservation has no free instance; enlarge the reservation", "capacityReservation"},
		"VcpuLimitExceeded": {provider.ResourceExhausted,
			"the quota of virtual CPUs is used up; request an increase in Service Quotas", ""},
		"InstanceLimitExceeded": {provider.ResourceExhausted,
			"the quota of instances is used up; request an increase in Service Quotas", ""},
		"MaxSpotInstanceCountExceeded": {provider.ResourceExhausted,
			"the quota of Spot instances is used up; request an increase in Service Quotas", ""},
		"VolumeLimitExceeded": {provider.ResourceExhausted,
			"the quota of EBS volumes is used up; request an increase in Service Quotas", ""},
		"MaxIOPSLimitExceeded": {provider.ResourceExhausted,
			"the quota of IOPS is used up; request an increase in Service Quotas", ""},
		"NetworkInterfaceLimitExceeded": {provider.ResourceExhausted,
			"the quota of network interfaces is used up; request an increase in Service Quotas", ""},
		"InsufficientFreeAddressesInSubnet": {provider.ResourceExhausted,
			"the subnet has no free address; use a larger subnet", "subnet"},
		"InsufficientCidrBlocks": {provider.ResourceExhausted,
			"the subnet has no free block for a prefix; use a larger subnet or a reservation of prefixes", "subnet"},
		"ResourceCountExceeded": {provider.ResourceExhausted, "a quota of the account is used up", ""},

		"IdempotentParameterMismatch": {provider.AlreadyExists,
			"an instance was requested with the same client token and other parameters", ""},
		"IdempotentInstanceTerminated": {provider.AlreadyExists, "the instance of this client token is terminated", ""},

		"InvalidInstanceID.NotFound":  {provider.NotFound, "the instance does not exist", ""},
		"InvalidInstanceID.Malformed": {provider.NotFound, "the instance does not exist", ""},
		"InvalidAMIID.NotFound": {provider.FailedPrecondition,
			"the image does not exist in the region, or is not shared with the account", "imageID"},
		"InvalidAMIID.Malformed":   {provider.InvalidArgument, "the ID of the image is not valid", "imageID"},
		"InvalidAMIID.Unavailable": {provider.FailedPrecondition, "the image is not available", "imageID"},
		"InvalidSubnetID.NotFound": {provider.FailedPrecondition,
			"the subnet does not exist in the region of the class", "subnet"},
		"InvalidSubnet": {provider.FailedPrecondition, "the subnet cannot be used", "subnet"},
		"InvalidGroup.NotFound": {provider.FailedPrecondition,
			"a security group does not exist in the region and VPC", "securityGroups"},
		"InvalidSecurityGroupID.NotFound": {provider.FailedPrecondition,
			"a security group does not exist in the region and VPC", "securityGroups"},
		"SecurityGroupsPerInterfaceLimitExceeded": {provider.FailedPrecondition,
			"the interface has more security groups than the quota allows", "securityGroups"},
		"InvalidKeyPair.NotFound": {provider.FailedPrecondition, "the key pair does not exist in the region", "keyName"},
		"InvalidPlacementGroup.Unknown": {provider.FailedPrecondition,
			"the placement group does not exist in the region", "placement.groupName"},
		"InvalidHostID.NotFound": {provider.FailedPrecondition, "the Dedicated Host does not exist", "placement.hostID"},
		"InvalidCapacityReservationId.NotFound": {provider.FailedPrecondition,
			"the capacity reservation does not exist", "capacityReservation"},
		"InvalidInstanceType": {provider.FailedPrecondition,
			"the region does not offer the instance type", "instanceType"},
		"Unsupported": {provider.FailedPrecondition,
			"the zone of the subnet does not offer the instance type in this configuration", "instanceType"},
		"AttachmentLimitExceeded": {provider.FailedPrecondition,
			"the instance type supports fewer network interfaces", "networkInterfaces"},
		"InstanceCreditSpecification.NotSupported": {provider.FailedPrecondition,
			"the instance type does not support the credit specification", "instanceType"},
		"TagLimitExceeded":          {provider.InvalidArgument, "the instance would have more than 50 tags", "tags"},
		"InvalidBlockDeviceMapping": {provider.InvalidArgument, "a volume is not valid for the image", "dataVolumes"},
		"InvalidParameterValue":     {provider.FailedPrecondition, "AWS does not accept a value", ""},
		"InvalidParameterCombination": {provider.FailedPrecondition, "AWS does not accept the combination of values",
			""},
		"InvalidParameter":              {provider.FailedPrecondition, "AWS does not accept a value", ""},
		"InvalidInstanceAttributeValue": {provider.FailedPrecondition, "AWS does not accept a value", "instanceType"},
		"UnsupportedOperation":          {provider.FailedPrecondition, "EC2 does not support this for the instance", ""},

		"OperationNotPermitted": {provider.FailedPrecondition,
			"an attribute of the instance protects it; remove the protection in AWS", ""},
		"IncorrectInstanceState": conflict, "IncorrectState": conflict, "VolumeInUse": conflict,
		"InvalidVolume.ZoneMismatch": conflict, "InvalidNetworkInterface.InUse": conflict,
		"ResourceAlreadyAssociated": conflict, "ConcurrentTagAccess": conflict, "DependencyViolation": conflict,
		"IncorrectModificationState": {provider.Aborted, "EBS is still modifying the volume", ""},
		"VolumeModificationRateExceeded": {provider.Aborted,
			"EBS accepts the next modification of a volume 6 hours after the last one", ""},

		"InternalError": unavailable, "InternalFailure": unavailable, "ServiceUnavailable": unavailable,
		"Unavailable": unavailable, "RequestTimeout": unavailable,
	}
}

// failures are the state reasons of instances that failed before they ran.
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/troubleshooting-launch.html
func failures() map[string]rule {
	all := rules()
	return map[string]rule{
		"Server.InsufficientInstanceCapacity": all["InsufficientInstanceCapacity"],
		"Server.InternalError":                {provider.Unavailable, "an internal error of AWS", ""},
		"Client.VolumeLimitExceeded":          all["VolumeLimitExceeded"],
		"Client.InstanceInitiatedShutdown": {provider.FailedPrecondition,
			"the operating system shut down during the first boot; look at the console output of the image", "imageID"},
		"Client.InvalidSnapshot.NotFound": {provider.FailedPrecondition,
			"a snapshot of the image does not exist", "imageID"},
		"Client.InternalError": {provider.FailedPrecondition,
			"the volumes cannot be created or decrypted: the KMS key does " +
				"not exist, is disabled, or its policy does not allow the credentials and the Spot service to use it", ""},
	}
}

// deniedAction finds the missing permission in a message of AWS. The rest of the message may repeat the request.
var deniedAction = regexp.MustCompile(`not authorized to perform: ([a-z0-9-]{2,32}:[A-Za-z0-9]{2,64})`)

// protectingAttribute finds the attribute that protects an instance.
var protectingAttribute = regexp.MustCompile(`'(disableApiTermination|disableApiStop)'`)

// translate converts an error of the SDK. The message contains only AWS's error code and names in fixed formats,
// because the rest of the answer may repeat the request.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var answer string
	api, refused := errors.AsType[smithy.APIError](err)
	denied, isDenied := errors.AsType[*endpoints.DeniedError](err)
	_, isSignIn := errors.AsType[signInError](err)
	switch {
	case httpapi.TooLong(err) != nil:
		// AWS may have carried out the request.
		out.Code, answer = provider.Internal, httpapi.TooLong(err).Error()
	case refused:
		out.Code, answer, out.Field = classify(err, api)
		if isSignIn && out.Code != provider.Throttled && !out.Code.Ambiguous() {
			out.Code, answer, out.Field = provider.Unauthenticated, "the role in the credentials cannot be assumed ("+
				safeCode(api.ErrorCode())+"); check the trust policy of the role and the external ID", ""
		}
		if response, ok := errors.AsType[*awshttp.ResponseError](err); ok && out.Code == provider.Throttled &&
			response.HTTPResponse() != nil {
			out.RetryAfter = httpapi.RetryAfter(response.HTTPResponse().Header)
		}
	case isDenied:
		out.Code, answer = provider.PermissionDenied, denied.Error()+
			"; to allow connections to it, set --aws-allow-address"
	case ctx.Err() != nil:
		out.Code, answer = contextError(ctx)
	case errors.Is(err, context.DeadlineExceeded):
		out.Code, answer = provider.DeadlineExceeded, "AWS did not answer in time"
	default:
		// AWS may or may not have received the request.
		out.Code, answer = provider.Unavailable, "AWS could not be reached, or its answer could not be read"
	}
	out.Message = attempted + ": " + answer
	return out
}

func contextError(ctx context.Context) (provider.Code, string) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return provider.Canceled, "the call was canceled"
	}
	return provider.DeadlineExceeded, "AWS did not answer in time"
}

// classify maps an error code of AWS. For unknown error codes, the HTTP status decides.
func classify(err error, api smithy.APIError) (code provider.Code, text, field string) {
	name := " (" + safeCode(api.ErrorCode()) + ")"
	if api.ErrorCode() == "AuthFailure" && strings.Contains(strings.ToLower(api.ErrorMessage()), "for images") {
		return provider.FailedPrecondition, "the image is not shared with the account" + name, "imageID"
	}
	if r, known := rules()[api.ErrorCode()]; known {
		text, field = r.text, r.field
		switch r.code {
		case provider.PermissionDenied:
			text = missingPermission(err, api)
		case provider.FailedPrecondition:
			if found := protectingAttribute.FindStringSubmatch(api.ErrorMessage()); found != nil {
				text = "the attribute " + found[1] + " protects the instance; set it to false in AWS"
			}
			if field == "" {
				field = fieldOf(api.ErrorMessage())
			}
		}
		return r.code, text + name, field
	}
	status := 0
	if response, ok := errors.AsType[*awshttp.ResponseError](err); ok {
		status = response.HTTPStatusCode()
	}
	switch {
	case status == http.StatusTooManyRequests:
		return provider.Throttled, "too many calls in the account and region" + name, ""
	case status == http.StatusUnauthorized:
		return provider.Unauthenticated, "AWS does not accept the credentials" + name, ""
	case status == http.StatusForbidden:
		return provider.PermissionDenied, missingPermission(err, api) + name, ""
	case status == http.StatusRequestTimeout || status >= http.StatusInternalServerError:
		return provider.Unavailable, "AWS is not available" + name, ""
	case status >= http.StatusBadRequest:
		return provider.FailedPrecondition, "AWS refuses the request" + name, ""
	}
	return provider.Internal, "the answer of AWS cannot be read" + name, ""
}

// missingPermission names the action that the credentials do not allow. AWS encodes the reason.
func missingPermission(err error, api smithy.APIError) string {
	action := ""
	if found := deniedAction.FindStringSubmatch(api.ErrorMessage()); found != nil {
		action = found[1]
	} else if operation, ok := errors.AsType[*smithy.OperationError](err); ok {
		action = strings.ToLower(operation.Service()) + ":" + operation.Operation()
	}
	return "the credentials do not have the permission " + action +
		"; compare their policy with the output of machinist provider permissions aws"
}

// fieldOf finds the field for an error code that EC2 uses for many parameters. Only the texts differ.
func fieldOf(message string) string {
	lower := strings.ToLower(message)
	for _, hint := range []struct{ text, field string }{
		{"architecture", "imageID"}, {"belong to different networks", "securityGroups"}, {"for instancetype",
			"instanceType"},
		{"iaminstanceprofile", "iamInstanceProfile"}, {"iam instance profile", "iamInstanceProfile"}, {"partition",
			"placement.partitionNumber"},
		{"zones", "networkInterfaces"}, {"ipv6", "ipv6AddressCount"}, {"price", "spot.maxPrice"},
	} {
		if strings.Contains(lower, hint.text) {
			return hint.field
		}
	}
	return ""
}

// safeCode returns only texts in the format of AWS's error codes, so that messages contain no other text of AWS.
func safeCode(code string) string {
	invalid := func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '.' && r != '_'
	}
	if code == "" || len(code) > 80 || strings.ContainsFunc(code, invalid) {
		return "without a code"
	}
	return code
}

func codeOf(err error) string {
	if api, ok := errors.AsType[smithy.APIError](err); ok {
		return api.ErrorCode()
	}
	return ""
}
