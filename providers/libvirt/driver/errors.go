package driver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/pkg/provider/endpoints"
)

// codeOf returns libvirt's error number, or ErrOk if the error is not from libvirt.
func codeOf(err error) libvirt.ErrorNumber {
	if answer, ok := errors.AsType[libvirt.Error](err); ok {
		return libvirt.ErrorNumber(answer.Code)
	}
	return libvirt.ErrOk
}

// messageContains reports whether libvirt's message contains one of the lower-case words. Many of libvirt's errors have
// the same number and differ only in the message. Users see libvirt's messages only about deletions, because other
// messages may repeat secrets from the request.
func messageContains(err error, words ...string) bool {
	text := strings.ToLower(err.Error())
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// answerText returns ": " and libvirt's message for a failed deletion, or an empty string. The caller appends the
// result to the name of the object. libvirt's message contains no secrets, because a request for a deletion contains
// only the name of the object.
func answerText(err error) string {
	answer, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return ""
	}
	words := strings.FieldsFunc(answer.Message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// isAbsent reports whether libvirt answered that the object does not exist.
func isAbsent(err error) bool {
	switch codeOf(err) {
	case libvirt.ErrNoDomain, libvirt.ErrNoStorageVol, libvirt.ErrNoStoragePool, libvirt.ErrNoDomainMetadata:
		return true
	}
	return false
}

// translate converts an error to an error with a canonical code and the driver's own message.
func translate(ctx context.Context, err error, attempted string) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unavailable, Cause: err}
	why := "libvirtd could not be reached, or its answer could not be read"
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	denied, isDenied := errors.AsType[*endpoints.DeniedError](err)
	switch {
	case isDenied:
		out.Code, why = provider.PermissionDenied, denied.Error()+"; "+allowAddress
	case codeOf(err) != libvirt.ErrOk:
		out.Code, why = classify(err)
	case errors.Is(err, errFrame):
		out.Code, why = provider.Internal, errFrame.Error()
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, why = provider.Canceled, "the call was cancelled"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		out.Code, why = provider.DeadlineExceeded, "libvirtd did not answer in time"
	case errors.Is(err, libvirt.ErrUnsupported):
		out.Code, why = provider.Unimplemented, "libvirtd is too old for this call"
	case errors.As(err, &alert), errors.Is(err, errRefused):
		out.Code, why = provider.Unauthenticated, errRefused.Error()
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid):
		out.Code = provider.Unauthenticated
		why = "libvirtd's certificate is not for the host in the URI, or not signed by the authority in " + keyCA
	}
	out.Message = attempted + ": " + why
	return out
}

// classify maps libvirt's errors to canonical codes and messages.
// https://libvirt.org/html/libvirt-virterror.html#virErrorNumber
func classify(err error) (provider.Code, string) {
	number := codeOf(err)
	withNumber := func(text string) string { return fmt.Sprintf("%s (libvirt's error %d)", text, number) }
	switch {
	case messageContains(err, "no space left", "not enough space", "disk quota exceeded"):
		return provider.ResourceExhausted, withNumber("the storage pool is full")
	case messageContains(err, "cannot allocate memory", "out of memory", "insufficient memory"):
		return provider.ResourceExhausted, withNumber("the hypervisor does not have enough memory")
	}
	switch number {
	case libvirt.ErrNoDomain:
		return provider.NotFound, "the domain does not exist"
	case libvirt.ErrAuthFailed, libvirt.ErrAuthCancelled, libvirt.ErrAuthUnavailable:
		return provider.Unauthenticated, withNumber("libvirtd does not accept the client")
	case libvirt.ErrOperationDenied, libvirt.ErrAccessDenied:
		return provider.PermissionDenied, withNumber("libvirtd does not allow the call to this client")
	case libvirt.ErrNoStoragePool:
		return provider.FailedPrecondition, "the storage pool does not exist"
	case libvirt.ErrNoStorageVol:
		return provider.FailedPrecondition, "the volume does not exist"
	case libvirt.ErrNoNetwork:
		return provider.FailedPrecondition, "the network does not exist or is not active"
	case libvirt.ErrNoNwfilter, libvirt.ErrNoSecret, libvirt.ErrNoInterface:
		return provider.FailedPrecondition, withNumber("an object that the domain refers to does not exist")
	case libvirt.ErrConfigUnsupported, libvirt.ErrXMLError, libvirt.ErrXMLDetail, libvirt.ErrInvalidArg:
		return provider.FailedPrecondition, withNumber("the hypervisor does not support a value of the providerSpec")
	case libvirt.ErrArgumentUnsupported, libvirt.ErrNoSupport:
		return provider.FailedPrecondition, withNumber("the hypervisor does not support the call")
	case libvirt.ErrOperationTimeout, libvirt.ErrResourceBusy, libvirt.ErrOperationAborted:
		return provider.Aborted, withNumber("another operation is using the object")
	case libvirt.ErrOperationInvalid:
		return provider.Aborted, withNumber("the call is not possible in the current state of the object")
	case libvirt.ErrRPC, libvirt.ErrNoConnect, libvirt.ErrInvalidConn:
		return provider.Unavailable, withNumber("libvirtd cannot serve the call")
	}
	if messageContains(err, "asynchronous jobs running", "is in use", "resource busy", "timed out") {
		return provider.Aborted, withNumber("another operation is using the object")
	}
	return provider.Internal, withNumber("libvirtd reports an internal error")
}

// withField adds the field of the providerSpec that caused the error.
func withField(err error, field string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || !e.Code.Terminal() {
		return err
	}
	copied := *e
	copied.Field = field
	return &copied
}
