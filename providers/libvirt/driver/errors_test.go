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

func TestErrorsOfLibvirtHaveCodes(t *testing.T) {
	const secret = "s3cret"
	answered := func(number libvirt.ErrorNumber, message string) error {
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
		{nil, answered(libvirt.ErrNoDomain, "Domain not found"), provider.NotFound},
		{nil, answered(libvirt.ErrAuthFailed, "authentication failed"), provider.Unauthenticated},
		{nil, answered(libvirt.ErrAccessDenied, "access denied"), provider.PermissionDenied},
		{nil, answered(libvirt.ErrOperationDenied, "read only access prevents virDomainDestroy"), provider.PermissionDenied},
		{nil, answered(libvirt.ErrNoStoragePool, "Storage pool not found"), provider.FailedPrecondition},
		{nil, answered(libvirt.ErrNoStorageVol, "Storage volume not found"), provider.FailedPrecondition},
		{nil, answered(libvirt.ErrNoNetwork, "Network not found"), provider.FailedPrecondition},
		{nil, answered(libvirt.ErrConfigUnsupported, "unsupported configuration"), provider.FailedPrecondition},
		{nil, answered(libvirt.ErrSystemError, "cannot write: No space left on device"), provider.ResourceExhausted},
		{nil, answered(libvirt.ErrInternalError, "pc.ram: Cannot allocate memory"), provider.ResourceExhausted},
		{nil, answered(libvirt.ErrOperationTimeout, "cannot acquire state change lock"), provider.Aborted},
		{nil, answered(libvirt.ErrInternalError, "pool 'p' has asynchronous jobs running."), provider.Aborted},
		{nil, answered(libvirt.ErrOperationInvalid, "domain is not running"), provider.Aborted},
		{nil, answered(libvirt.ErrRPC, "broken pipe"), provider.Unavailable},
		{nil, answered(libvirt.ErrInternalError, "something"), provider.Internal},
		{ended, answered(libvirt.ErrNoDomain, "Domain not found"), provider.NotFound},
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
			t.Errorf("%v becomes %v, want %s", c.err, err, c.want)
		}
	}
	if translate(t.Context(), nil, "try") != nil || existing(nil) != nil {
		t.Error("no error becomes one")
	}
	if err := existing(provider.Errorf(provider.FailedPrecondition, "no")); !provider.CodeOf(err).Ambiguous() {
		t.Errorf("the code of %v says that nothing was made", err)
	}
	if err := at(provider.Errorf(provider.FailedPrecondition, "no"), "volume.base"); func() string {
		e, _ := errors.AsType[*provider.Error](err)
		return e.Field
	}() != "volume.base" {
		t.Errorf("%v names no field", err)
	}
}

// Only what a guest cannot end by itself counts as stopped.
func TestStatesOfDomains(t *testing.T) {
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
		{libvirt.DomainShutoff, int32(libvirt.DomainShutoffShutdown), provider.StateStopped, "the guest has shut down"},
		{libvirt.DomainShutoff, 0, provider.StateStopped, "does not know why"},
		{libvirt.DomainCrashed, 0, provider.StateStopped, "crashed"},
		{libvirt.DomainPmsuspended, 0, provider.StateStopped, "suspended"},
		{libvirt.DomainNostate, 0, provider.StateRunning, "does not know"},
	} {
		state, message := stateOf(c.state, c.reason)
		if state != c.want || !strings.Contains(message, c.words) || c.words == "" && message != "" {
			t.Errorf("state %d with reason %d is %s, %q", c.state, c.reason, state, message)
		}
	}
}

// Rule: remaining-parts-named.
func TestADeletionThatLibvirtRefusesIsReportedInItsWords(t *testing.T) {
	busy := libvirt.Error{Code: uint32(libvirt.ErrOperationInvalid), Message: "storage volume is still\nbeing allocated"}
	if got := inItsWords(busy); got != ": storage volume is still being allocated" {
		t.Errorf("got %q", got)
	}
	if got := inItsWords(context.DeadlineExceeded); got != "" {
		t.Errorf("got %q for an error that is not libvirt's", got)
	}
}
