package machineclass

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

var noon = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)

func large() provider.Capacity {
	return provider.Capacity{
		Resources:    corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")},
		InstanceType: "large", Region: "r", Zone: "z", Architecture: "arm64", OperatingSystem: "linux",
	}
}

func failing(reason string, code provider.Code, message string) validation {
	return refused(reason, &provider.Error{Code: code, Message: message})
}

func classWith(validations ...validation) *v1beta1.MachineClass {
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Generation: 3}}
	for _, v := range validations {
		class.Status, _ = statusOf(class, v, noon)
	}
	return class
}

func TestStatusOfAValidation(t *testing.T) {
	unavailable := failing(v1beta1.ReasonProviderUnavailable, provider.Unavailable, "request 1")
	for name, test := range map[string]struct {
		before     *v1beta1.MachineClass
		validation validation
		transition transition
		ready      metav1.ConditionStatus
		message    string
		capacity   bool
	}{
		"new and valid": {classWith(), valid(large()), unchanged, metav1.ConditionTrue, "", true},
		"new and refused": {classWith(), failing(v1beta1.ReasonInvalidProviderSpec, provider.InvalidArgument, "no"),
			worse, metav1.ConditionFalse, "no", false},
		"valid again":   {classWith(valid(large())), valid(large()), unchanged, metav1.ConditionTrue, "", true},
		"outage begins": {classWith(valid(large())), unavailable, worse, metav1.ConditionFalse, "request 1", true},
		"outage continues": {classWith(unavailable), failing(v1beta1.ReasonProviderUnavailable, provider.Unavailable,
			"request 2"), unchanged, metav1.ConditionFalse, "request 1", false},
		"outage has another code": {classWith(unavailable), failing(v1beta1.ReasonProviderUnavailable, provider.Throttled,
			"request 3"), unchanged, metav1.ConditionFalse, "request 3", false},
		"outage ends": {classWith(valid(large()), unavailable), valid(large()), better,
			metav1.ConditionTrue, "", true},
		"Secret is deleted": {classWith(valid(large())), validation{reason: v1beta1.ReasonCredentialsNotFound,
			message: "gone"}, worse, metav1.ConditionFalse, "gone", true},
		"another Secret is missing": {classWith(validation{reason: v1beta1.ReasonCredentialsNotFound}),
			validation{reason: v1beta1.ReasonUserDataNotFound}, worse, metav1.ConditionFalse, "", false},
		"valid and later refused": {classWith(valid(large())), failing(v1beta1.ReasonInvalidProviderSpec,
			provider.FailedPrecondition, "no"), worse, metav1.ConditionFalse, "no", false},
	} {
		t.Run(name, func(t *testing.T) {
			status, transition := statusOf(test.before, test.validation, noon.Add(time.Hour))
			ready := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionReady)
			if ready.Status != test.ready || ready.Reason != test.validation.reason ||
				!strings.Contains(ready.Message, test.message) || transition != test.transition {
				t.Errorf("transition %d, condition %+v", transition, ready)
			}
			if got := status.Capacity != nil && status.NodeInfo != nil; got != test.capacity {
				t.Errorf("capacity %v, nodeInfo %v", status.Capacity, status.NodeInfo)
			}
			if status.ObservedGeneration != 3 || ready.ObservedGeneration != 3 {
				t.Errorf("observed generation %d, %d", status.ObservedGeneration, ready.ObservedGeneration)
			}
		})
	}
}

func TestSameValidationDoesNotChangeTheStatus(t *testing.T) {
	for _, v := range []validation{valid(large()), failing(v1beta1.ReasonProviderUnavailable, provider.Unavailable, "x"),
		{reason: v1beta1.ReasonUserDataNotFound, message: "y"}} {
		class := classWith(v)
		if after, transition := statusOf(class, v, noon.Add(time.Hour)); transition != unchanged ||
			!equality.Semantic.DeepEqual(class.Status, after) {
			t.Errorf("%s: %+v became %+v", v.reason, class.Status, after)
		}
	}
}

// Rule: class-validated-on-change.
func TestReasonAndRetryOfEveryCode(t *testing.T) {
	for _, test := range []struct {
		code        provider.Code
		credentials bool
		reason      string
		retry       bool
	}{
		{provider.OK, true, v1beta1.ReasonValid, false},
		{provider.Unimplemented, true, v1beta1.ReasonValid, false},
		{provider.InvalidArgument, true, v1beta1.ReasonInvalidProviderSpec, true},
		{provider.FailedPrecondition, true, v1beta1.ReasonInvalidProviderSpec, true},
		{provider.Unauthenticated, false, v1beta1.ReasonCredentialsNotFound, false},
		{provider.Unauthenticated, true, v1beta1.ReasonCredentialsRefused, true},
		{provider.PermissionDenied, true, v1beta1.ReasonCredentialsRefused, true},
		{provider.NotFound, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.ResourceExhausted, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Throttled, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Unavailable, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.DeadlineExceeded, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Aborted, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Canceled, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Internal, true, v1beta1.ReasonProviderUnavailable, true},
		{provider.Unknown, true, v1beta1.ReasonProviderUnavailable, true},
	} {
		var err error
		if test.code != provider.OK {
			err = fmt.Errorf("wrapped: %w", provider.Errorf(test.code, "m"))
		}
		v, retry := validationOf(large(), err, test.credentials)
		if v.reason != test.reason || retry != test.retry {
			t.Errorf("%s: %s, retry %v; want %s, %v", test.code, v.reason, retry, test.reason, test.retry)
		}
	}
	if v, retry := validationOf(provider.Capacity{}, errors.New("plain"), true); v.code != provider.Unknown || !retry {
		t.Errorf("an error without a code: %+v, retry %v", v, retry)
	}
}

func TestBackoffGrowsToALimitAndRespectsRetryAfter(t *testing.T) {
	for _, test := range []struct {
		code        provider.Code
		failures    int
		retryAfter  time.Duration
		least, most time.Duration
	}{
		{provider.Unavailable, 1, 0, time.Second, 1250 * time.Millisecond},
		{provider.Unavailable, 4, 0, 8 * time.Second, 10 * time.Second},
		{provider.Unavailable, 1 << 30, 0, 5 * time.Minute, 375 * time.Second},
		{provider.Throttled, 1, time.Hour, time.Hour, time.Hour},
		{provider.Unauthenticated, 1, 0, 30 * time.Second, 37500 * time.Millisecond},
		{provider.PermissionDenied, 50, 0, 10 * time.Minute, 750 * time.Second},
	} {
		if d := backoff(test.code, test.failures, test.retryAfter, "seed"); d < test.least || d > test.most {
			t.Errorf("%+v: %s", test, d)
		}
	}
	if backoff(provider.Unavailable, 5, 0, "a") == backoff(provider.Unavailable, 5, 0, "b") {
		t.Error("two classes that failed at the same time are retried at the same time")
	}
}

func TestMessagesAreBounded(t *testing.T) {
	class := classWith(failing(v1beta1.ReasonInvalidProviderSpec, provider.InvalidArgument, strings.Repeat("ü", 100_000)+
		"\xff"))
	if m := class.Status.Conditions[0].Message; len(m) > 1100 || !strings.HasSuffix(m, "…") ||
		strings.ToValidUTF8(m, "") != m {
		t.Errorf("message of %d bytes: %q", len(m), m)
	}
}

// No event reports a new permission, so the Secret is read again after some time.
func TestForbiddenInputIsReadAgain(t *testing.T) {
	for _, forbidden := range []bool{false, true} {
		_, retry, err := unresolvedValidation(&resolve.Error{Reason: v1beta1.ReasonCredentialsNotFound, Forbidden: forbidden})
		if err != nil || (retry > 0) != forbidden {
			t.Errorf("forbidden %t: retry after %s, error %v", forbidden, retry, err)
		}
	}
}

// The Machine reconciler writes these fields of the status.
//
// Rule: capacity-memory.
func TestTheCapacityMemoryOfAClassIsKept(t *testing.T) {
	t.Parallel()
	class := classWith(valid(large()))
	memory := metav1.Condition{Type: v1beta1.ConditionCapacityAvailable, Status: metav1.ConditionFalse,
		Reason: v1beta1.ReasonInsufficientResources, LastTransitionTime: metav1.NewTime(noon)}
	retry := &metav1.Time{Time: noon.Add(time.Minute)}
	class.Status.Conditions, class.Status.CapacityRetryTime = append(class.Status.Conditions, memory), retry
	for i := 0; len(class.Status.Conditions) < 16; i++ { // Other clients fill the list.
		class.Status.Conditions = append([]metav1.Condition{{Type: fmt.Sprintf("Foreign%d", i)}}, class.Status.Conditions...)
	}
	later := noon.Add(time.Hour)
	valid, _ := statusOf(class, valid(large()), later)
	invalid, _ := statusOf(class, failing(v1beta1.ReasonInvalidProviderSpec, provider.InvalidArgument, "no"), later)
	deleting, _ := statusInDeletion(class, deletion{reason: v1beta1.ReasonWithdrawn}, later)
	for name, status := range map[string]v1beta1.MachineClassStatus{"valid": valid, "invalid": invalid, "deleting": deleting} {
		kept := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionCapacityAvailable)
		if kept == nil || !equality.Semantic.DeepEqual(*kept, memory) || !status.CapacityRetryTime.Equal(retry) {
			t.Errorf("%s: condition %+v, retry time %v", name, kept, status.CapacityRetryTime)
		}
	}
}
