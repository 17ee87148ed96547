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
)

// codeOf returns libvirt's number of an error; ErrOk where libvirt has not answered.
func codeOf(err error) libvirt.ErrorNumber {
	if answer, ok := errors.AsType[libvirt.Error](err); ok {
		return libvirt.ErrorNumber(answer.Code)
	}
	return libvirt.ErrOk
}

// has reports whether libvirt's message has one of the words, in lower case. Many errors have one number, and differ
// by the message alone, which is shown for deletions only: it may repeat what was sent.
func has(err error, words ...string) bool {
	text := strings.ToLower(err.Error())
	for _, word := range words {
		if strings.Contains(text, word) {
			return true
		}
	}
	return false
}

// inItsWords is what libvirt has answered to a deletion, to be put behind the name of the object; empty if it has not
// answered. Such an answer repeats nothing secret: a deletion sends a name only.
func inItsWords(err error) string {
	answer, ok := errors.AsType[libvirt.Error](err)
	if !ok {
		return ""
	}
	words := strings.FieldsFunc(answer.Message, func(r rune) bool { return unicode.IsSpace(r) || !unicode.IsGraphic(r) })
	return fmt.Sprintf(": %.256s", strings.Join(words, " "))
}

// absent reports whether libvirt says that what was asked for is not there.
func absent(err error) bool {
	switch codeOf(err) {
	case libvirt.ErrNoDomain, libvirt.ErrNoStorageVol, libvirt.ErrNoStoragePool, libvirt.ErrNoDomainMetadata:
		return true
	}
	return false
}

// translate makes of an error one with a canonical code. The message is ours.
func translate(ctx context.Context, err error, attempted string) error {
	if err == nil {
		return nil
	}
	if _, ours := errors.AsType[*provider.Error](err); ours {
		return err
	}
	out := &provider.Error{Code: provider.Unavailable, Cause: err}
	why := "libvirtd could not be reached, or its answer not be read"
	var alert tls.AlertError
	var authority x509.UnknownAuthorityError
	var host x509.HostnameError
	var invalid x509.CertificateInvalidError
	switch {
	case codeOf(err) != libvirt.ErrOk:
		out.Code, why = meaning(err)
	case errors.Is(err, errFrame):
		out.Code, why = provider.Internal, errFrame.Error()
	case errors.Is(ctx.Err(), context.Canceled):
		out.Code, why = provider.Canceled, "the call was cancelled"
	case ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded):
		out.Code, why = provider.DeadlineExceeded, "no answer came in time"
	case errors.Is(err, libvirt.ErrUnsupported):
		out.Code, why = provider.Unimplemented, "libvirtd is too old for it"
	case errors.As(err, &alert), errors.Is(err, errRefused):
		out.Code, why = provider.Unauthenticated, errRefused.Error()
	case errors.As(err, &authority), errors.As(err, &host), errors.As(err, &invalid):
		out.Code = provider.Unauthenticated
		why = "libvirtd's certificate is not one of its host's name that the authority in " + keyCA + " has signed"
	}
	out.Message = attempted + ": " + why
	return out
}

// meaning is the one table from libvirt's errors to our codes.
// https://libvirt.org/html/libvirt-virterror.html#virErrorNumber
func meaning(err error) (provider.Code, string) {
	number := codeOf(err)
	named := func(text string) string { return fmt.Sprintf("%s (libvirt's error %d)", text, number) }
	switch {
	case has(err, "no space left", "not enough space", "disk quota exceeded"):
		return provider.ResourceExhausted, named("the storage pool is full")
	case has(err, "cannot allocate memory", "out of memory", "insufficient memory"):
		return provider.ResourceExhausted, named("the hypervisor has not enough memory")
	}
	switch number {
	case libvirt.ErrNoDomain:
		return provider.NotFound, "there is no such domain"
	case libvirt.ErrAuthFailed, libvirt.ErrAuthCancelled, libvirt.ErrAuthUnavailable:
		return provider.Unauthenticated, named("libvirtd does not accept the client")
	case libvirt.ErrOperationDenied, libvirt.ErrAccessDenied:
		return provider.PermissionDenied, named("libvirtd does not allow it to this client")
	case libvirt.ErrNoStoragePool:
		return provider.FailedPrecondition, "there is no such storage pool"
	case libvirt.ErrNoStorageVol:
		return provider.FailedPrecondition, "there is no such volume"
	case libvirt.ErrNoNetwork:
		return provider.FailedPrecondition, "there is no such network, or it is not active"
	case libvirt.ErrNoNwfilter, libvirt.ErrNoSecret, libvirt.ErrNoInterface:
		return provider.FailedPrecondition, named("something that the domain needs is not there")
	case libvirt.ErrConfigUnsupported, libvirt.ErrXMLError, libvirt.ErrXMLDetail, libvirt.ErrInvalidArg:
		return provider.FailedPrecondition, named("the hypervisor cannot do what the providerSpec asks for")
	case libvirt.ErrArgumentUnsupported, libvirt.ErrNoSupport:
		return provider.FailedPrecondition, named("the hypervisor does not support it")
	case libvirt.ErrOperationTimeout, libvirt.ErrResourceBusy, libvirt.ErrOperationAborted:
		return provider.Aborted, named("another operation has it")
	case libvirt.ErrOperationInvalid:
		return provider.Aborted, named("it is in another state now")
	case libvirt.ErrRPC, libvirt.ErrNoConnect, libvirt.ErrInvalidConn:
		return provider.Unavailable, named("libvirtd cannot serve")
	}
	if has(err, "asynchronous jobs running", "is in use", "resource busy", "timed out") {
		return provider.Aborted, named("another operation has it")
	}
	return provider.Internal, named("libvirtd reports a failure")
}

// at puts the field of the providerSpec into an error for which it is to blame.
func at(err error, field string) error {
	e, ok := errors.AsType[*provider.Error](err)
	if !ok || !e.Code.Terminal() {
		return err
	}
	copied := *e
	copied.Field = field
	return &copied
}
