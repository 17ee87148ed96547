package driver

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
	"machinist.dev/machinist/pkg/provider/httpapi"
)

// faultOf returns the fault in vCenter's answer as a struct, or nil.
func faultOf(err error) any {
	if err == nil || !soap.IsSoapFault(err) {
		return nil
	}
	return soap.ToSoapFault(err).VimFault()
}

// taskError is the fault with which a task ended.
type taskError struct{ fault types.BaseMethodFault }

func (e *taskError) Error() string { return faultName(e.fault) }

// translate converts an error to an error with a canonical code and the driver's own message. Faults may repeat the
// request, so the message contains only the names of the fault, of a property and of an object.
func translate(ctx context.Context, err error, attempted string) error {
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unknown, Cause: err}
	var why string
	status, hasStatus := errors.AsType[*statusError](err)
	task, hasTask := errors.AsType[*taskError](err)
	denied, isDenied := errors.AsType[*endpoints.DeniedError](err)
	switch {
	case hasTask:
		out.Code, why = classify(task.fault)
	case faultOf(err) != nil:
		out.Code, why = classify(faultOf(err))
	case hasStatus:
		out.Code, why = classifyStatus(status.status)
		if out.Code == provider.Throttled || out.Code == provider.Unavailable {
			out.RetryAfter = httpapi.RetryAfter(status.header)
		}
	case isDenied:
		out.Code, why = provider.PermissionDenied, denied.Error()+"; "+allowAddress
	case httpapi.TooLong(err) != nil:
		out.Code, why = provider.Internal, httpapi.TooLong(err).Error()
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, why = provider.Canceled, "the call was cancelled"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		out.Code, why = provider.DeadlineExceeded, "vCenter did not answer in time"
	default:
		// vCenter may or may not have received the request.
		out.Code, why = provider.Unavailable, "vCenter could not be reached, or its answer could not be read"
	}
	out.Message = attempted + ": " + why
	return out
}

func classifyStatus(status int) (provider.Code, string) {
	switch {
	case status == http.StatusUnauthorized:
		return provider.Unauthenticated, "vCenter does not accept the credentials"
	case status == http.StatusForbidden:
		return provider.PermissionDenied, "vCenter or a proxy forbids the call"
	case status == http.StatusTooManyRequests:
		return provider.Throttled, "there were too many calls"
	case status == http.StatusRequestTimeout || status >= 500:
		return provider.Unavailable, fmt.Sprintf("vCenter is temporarily unavailable (HTTP status %d)", status)
	}
	return provider.Internal, fmt.Sprintf("the answer is not one of vCenter's SOAP API (HTTP status %d)", status)
}

// classify maps faults to canonical codes and messages. vCenter returns a fault as a struct in an answer, and as a
// pointer in a task.
// https://developer.broadcom.com/xapis/vsphere-web-services-api/latest/index-faults.html
func classify(fault any) (provider.Code, string) {
	if v := reflect.ValueOf(fault); v.Kind() == reflect.Pointer && !v.IsNil() {
		fault = v.Elem().Interface()
	}
	switch f := fault.(type) {
	case types.InvalidLogin, types.NotAuthenticated:
		return provider.Unauthenticated, "vCenter does not accept the credentials"
	case types.NoPermission:
		object := "an object"
		if f.Object != nil {
			object = f.Object.Type + " " + f.Object.Value
		}
		return provider.PermissionDenied, fmt.Sprintf("the user lacks the privilege %.128s on %.128s", f.PrivilegeId, object)
	case types.ManagedObjectNotFound:
		return provider.NotFound, fmt.Sprintf("the object %.128s no longer exists", f.Obj.Value)
	case types.DuplicateName:
		return provider.AlreadyExists, "the name is already used in the folder"
	case types.RequestCanceled, types.TaskInProgress, types.ConcurrentAccess, types.InvalidState, types.InvalidPowerState,
		types.ResourceInUse, types.FileLocked, types.VAppTaskInProgress:
		return provider.Aborted, "another operation on the object, or its state, prevents this now (" + faultName(fault) + ")"
	case types.InvalidArgument:
		return provider.FailedPrecondition, "vCenter refuses the value of " + property(f.InvalidProperty)
	case types.InvalidVmConfig:
		return provider.FailedPrecondition, "vCenter refuses the configuration of " + property(f.Property)
	case types.InvalidDeviceSpec:
		return provider.FailedPrecondition, fmt.Sprintf("vCenter refuses device %d of the request", f.DeviceIndex)
	case types.NoDiskSpace, types.NoCompatibleHost, types.NoCompatibleDatastore, types.NoHost, types.VmLimitLicense:
		return provider.ResourceExhausted, "no host or datastore has enough free capacity (" + faultName(fault) + ")"
	case types.HostNotConnected, types.HostNotReachable, types.HostCommunication, types.Timedout, types.NotEnoughLicenses,
		types.DatabaseError, types.SystemError:
		return provider.Unavailable, "vCenter or the host is temporarily unavailable (" + faultName(fault) + ")"
	}
	switch name := faultName(fault); {
	case strings.HasPrefix(name, "Insufficient"):
		return provider.ResourceExhausted, "no host or datastore has enough free capacity (" + name + ")"
	case strings.HasPrefix(name, "Invalid"), strings.HasSuffix(name, "NotFound"), strings.Contains(name, "NotSupported"):
		return provider.FailedPrecondition, "vCenter refuses the request (" + name + ")"
	case name == "":
		return provider.Unavailable, "vCenter returned an error without a fault"
	default:
		return provider.Internal, "vCenter reports the fault " + name
	}
}

// faultName returns the name of the type of a fault.
func faultName(fault any) string {
	t := reflect.TypeOf(fault)
	if t == nil {
		return ""
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Name()
}

// property returns the name of a property in a fault, if it looks like one.
func property(name string) string {
	if name == "" || len(name) > 128 || strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._[]", r)
	}) {
		return "a property"
	}
	return name
}

// isFault reports whether the error contains a fault of type T.
func isFault[T any](err error) bool {
	if task, ok := errors.AsType[*taskError](err); ok {
		_, is := any(task.fault).(*T)
		return is
	}
	_, is := faultOf(err).(T)
	return is
}

// asCreateError converts an error of a creation. NotFound means that the request refers to a missing object. NotFound
// never means that the instance does not exist.
func asCreateError(err error, attempted string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || e.Code != provider.NotFound {
		return err
	}
	return provider.Errorf(provider.FailedPrecondition, "%s: an object to which the request refers does not exist",
		attempted)
}
