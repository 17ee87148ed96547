package machine

import (
	"context"
	"fmt"
	"time"

	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// joinedState describes the calls of this process that report to the provider that the Node has joined.
type joinedState struct {
	// failures is the number of failed calls. The next call is made at notBefore.
	failures  int32
	notBefore time.Time
	// isUnsupported is true if the driver cannot remove the data of this instance.
	isUnsupported bool
}

// reportJoined reports to the provider that the Node has joined, so that the provider removes the data that only the
// first boot needs. The call is repeated until it succeeds, which the status records. If the process ends before the
// status is written, the next process repeats the call. A failed call does not affect the Machine, because the
// bootstrap token in the data expires in any case.
func (p *pass) reportJoined(ctx context.Context) (progress, error) {
	m, state := p.machine, p.states.get(p.machine).joined
	if p.Joiner == nil || p.node == nil || !nodeReady(p.node) || m.Status.NodeRef == nil || m.Status.Instance == nil ||
		m.Status.Instance.BootDataRemoved || m.Spec.ProviderID == "" || machinestate.IsPaused(m) || state.isUnsupported {
		return next, nil
	}
	if left := state.notBefore.Sub(p.now); left > 0 {
		p.requeueIn(left)
		return next, nil
	}
	switch err := p.callJoined(ctx); {
	case err == nil:
		m.Status.Instance.BootDataRemoved = true
		state = joinedState{}
	case provider.CodeOf(err) == provider.Unimplemented:
		state = joinedState{isUnsupported: true}
	default:
		logf.FromContext(ctx).Info("Failed to remove the boot data of the instance, will retry", "cause", err.Error())
		state.failures = increment(state.failures)
		delay := lookupRetryPolicy(provider.CodeOf(err)).backoff(state.failures, provider.RetryAfter(err), string(m.UID))
		state.notBefore = p.Clock.Now().Add(delay)
		p.requeueIn(delay)
	}
	p.states.update(m, func(s *machineState) { s.joined = state })
	return next, nil
}

func (p *pass) callJoined(ctx context.Context) error {
	inputs, err := p.Classes.ResolveForDeletion(ctx, p.machine)
	if err != nil {
		return fmt.Errorf("resolve the machine's class: %w", err)
	}
	return p.Joiner.Joined(ctx, provider.JoinedRequest{Machine: identity(p.machine), Class: inputs.Class(),
		ClusterID: p.ClusterID, ProviderID: p.machine.Spec.ProviderID, Scope: scopeOf(p.machine)})
}
