package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/digitalocean/go-libvirt"

	"machinist.dev/machinist/pkg/provider"
)

func TestLibvirtErrorsHaveCodes(t *testing.T) {
	const secret = "s3cret"
	libvirtError := func(number libvirt.ErrorNumber, message string) error {
		return fmt.Errorf("wrapped: %w", libvirt.Error{Code: uint32(number), Message: message + " " + secret})
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	late, stop := context.WithTimeout(t.Context(), 0)
	defer stop()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want provider.Code
	}{
		{nil, libvirtError(libvirt.ErrNoDomain, "Domain not found"), provider.NotFound},
		{nil, libvirtError(libvirt.ErrAuthFailed, "authentication failed"), provider.Unauthenticated},
		{nil, libvirtError(libvirt.ErrAccessDenied, "access denied"), provider.PermissionDenied},
		{nil, libvirtError(libvirt.ErrOperationDenied, "read only access prevents virDomainDestroy"), provider.PermissionDenied},
		{nil, libvirtError(libvirt.ErrNoStoragePool, "Storage pool not found"), provider.FailedPrecondition},
		{nil, libvirtError(libvirt.ErrNoStorageVol, "Storage volume not found"), provider.FailedPrecondition},
		{nil, libvirtError(libvirt.ErrNoNetwork, "Network not found"), provider.FailedPrecondition},
		{nil, libvirtError(libvirt.ErrConfigUnsupported, "unsupported configuration"), provider.FailedPrecondition},
		{nil, libvirtError(libvirt.ErrSystemError, "cannot write: No space left on device"), provider.ResourceExhausted},
		{nil, libvirtError(libvirt.ErrInternalError, "pc.ram: Cannot allocate memory"), provider.ResourceExhausted},
		{nil, libvirtError(libvirt.ErrOperationTimeout, "cannot acquire state change lock"), provider.Aborted},
		{nil, libvirtError(libvirt.ErrInternalError, "pool 'p' has asynchronous jobs running."), provider.Aborted},
		{nil, libvirtError(libvirt.ErrOperationInvalid, "domain is not running"), provider.Aborted},
		{nil, libvirtError(libvirt.ErrRPC, "broken pipe"), provider.Unavailable},
		{nil, libvirtError(libvirt.ErrInternalError, "something"), provider.Internal},
		{ended, libvirtError(libvirt.ErrNoDomain, "Domain not found"), provider.NotFound},
		{nil, libvirt.ErrInterrupted, provider.Unavailable},
		{nil, io.EOF, provider.Unavailable},
		{nil, errRefused, provider.Unauthenticated},
		{nil, errFrame, provider.Internal},
		{ended, libvirt.ErrInterrupted, provider.Canceled},
		{late, libvirt.ErrInterrupted, provider.DeadlineExceeded},
		{nil, provider.Errorf(provider.Aborted, "ours"), provider.Aborted},
	} {
		ctx := c.ctx
		if ctx == nil {
			ctx = t.Context()
		}
		err := translate(ctx, c.err, "try")
		if provider.CodeOf(err) != c.want || strings.Contains(err.Error(), secret) {
			t.Errorf("%v: got %v, want %s without libvirt's message", c.err, err, c.want)
		}
	}
	if translate(t.Context(), nil, "try") != nil || ambiguousError(nil) != nil {
		t.Error("nil was converted to an error")
	}
	if err := ambiguousError(provider.Errorf(provider.FailedPrecondition, "no")); !provider.CodeOf(err).Ambiguous() {
		t.Errorf("the code of %v means that nothing was created", err)
	}
	if err := withField(provider.Errorf(provider.FailedPrecondition, "no"), "volume.base"); func() string {
		e, _ := errors.AsType[*provider.Error](err)
		return e.Field
	}() != "volume.base" {
		t.Errorf("%v does not have the field volume.base", err)
	}
}

// A domain is reported as stopped only if it stays in its state until a client starts or resumes it.
func TestDomainStatesAreConverted(t *testing.T) {
	for _, c := range []struct {
		state  libvirt.DomainState
		reason int32
		want   provider.InstanceState
		words  string
	}{
		{libvirt.DomainRunning, 1, provider.StateRunning, ""}, {libvirt.DomainBlocked, 0, provider.StateRunning, ""},
		{libvirt.DomainShutdown, 0, provider.StateRunning, "shutting down"},
		{libvirt.DomainPaused, int32(libvirt.DomainPausedStartingUp), provider.StatePending, "starting"},
		{libvirt.DomainPaused, int32(libvirt.DomainPausedMigration), provider.StateRunning, "operation"},
		{libvirt.DomainPaused, int32(libvirt.DomainPausedIoerror), provider.StateStopped, "full"},
		{libvirt.DomainPaused, int32(libvirt.DomainPausedUser), provider.StateStopped, "paused"},
		{libvirt.DomainShutoff, int32(libvirt.DomainShutoffCrashed), provider.StateStopped, "crashed or was killed"},
		{libvirt.DomainShutoff, int32(libvirt.DomainShutoffDestroyed), provider.StateStopped, "destroyed"},
		{libvirt.DomainShutoff, int32(libvirt.DomainShutoffShutdown), provider.StateStopped, "the guest shut down"},
		{libvirt.DomainShutoff, 0, provider.StateStopped, "does not know the reason"},
		{libvirt.DomainCrashed, 0, provider.StateStopped, "crashed"},
		{libvirt.DomainPmsuspended, 0, provider.StateStopped, "suspended"},
		{libvirt.DomainNostate, 0, provider.StateRunning, "does not know"},
	} {
		state, message := stateOf(c.state, c.reason)
		if state != c.want || !strings.Contains(message, c.words) || c.words == "" && message != "" {
			t.Errorf("state %d with reason %d: got %s %q, want %s %q", c.state, c.reason, state, message, c.want, c.words)
		}
	}
}

// Rule: remaining-parts-named.
func TestRefusedDeletionContainsLibvirtMessage(t *testing.T) {
	busy := libvirt.Error{Code: uint32(libvirt.ErrOperationInvalid), Message: "storage volume is still\nbeing allocated"}
	if got := answerText(busy); got != ": storage volume is still being allocated" {
		t.Errorf("got %q", got)
	}
	if got := answerText(context.DeadlineExceeded); got != "" {
		t.Errorf("got %q for an error without an answer, want an empty text", got)
	}
}
