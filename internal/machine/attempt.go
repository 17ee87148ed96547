package machine

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/pkg/provider"
)

// tokenReserve is how much longer a bootstrap token is valid than the Machine has time to join. Time in which the
// target cluster is unreachable does not count for the join (rule join-timeout-fails-machine), and a recovered cluster
// removes expired tokens at once. When the Machine has joined, or failed to join, its token is deleted in any case.
const tokenReserve = time.Hour

// maxTokenLife is the longest validity of a bootstrap token, not counting tokenReserve. Anyone who reads the user data
// of an instance can join with its token until then. The token is extended while its machine may still join.
const maxTokenLife = 4 * time.Hour

// tokenLife returns how long a token is valid for a machine that has the given time left to join.
func tokenLife(left time.Duration) time.Duration { return min(left, maxTokenLife) + tokenReserve }

// extendToken extends the token of a machine that has more time to join than a token is valid. A failure does not delay
// other steps, because the token is still valid for tokenReserve at that time.
func (s *launchStep) extendToken(ctx context.Context) (progress, error) {
	m := s.machine
	if s.Target == nil || m.Spec.Timeouts.CreationOrDefault() <= maxTokenLife || m.Spec.ProviderID == "" ||
		m.Status.NodeRef != nil || s.hasRun() || m.Status.FailureReason != "" || machinestate.Paused(m) || s.outage() {
		return next, nil
	}
	due := s.states.get(m).launch.extendTokenAt
	if left := due.Sub(s.now); left > 0 {
		s.requeueIn(left)
		return next, nil
	}
	ends, err := s.tokens.Extend(ctx, s.attempt(), s.now.Add(tokenReserve), s.now.Add(tokenLife(s.joinTimeLeft())))
	switch {
	case err != nil:
		logf.FromContext(ctx).Error(err, "Cannot extend the bootstrap token of a machine that has not joined yet")
		due = s.now.Add(time.Minute)
	case ends.IsZero():
		due = s.now.Add(maxTokenLife) // The machine has no token.
	default:
		due = ends.Add(-tokenReserve)
		due = later(due, s.now.Add(time.Minute))
	}
	s.states.update(m, func(m *machineState) { m.launch.extendTokenAt = due })
	s.requeueIn(due.Sub(s.now))
	return next, nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// findLaunched looks for an instance of this Machine for which the answer of Create was lost. If there is none, it
// opens the next attempt as soon as the settle time has passed, because an earlier Create may still take effect. If it
// returns no instance, another pass is scheduled.
func (s *launchStep) findLaunched(ctx context.Context, inputs resolve.Resolved,
	attempt bootstrap.Attempt) (*provider.Instance, error) {
	instance, err := s.instance.get(ctx, inputs)
	if err == nil || !provider.IsNotFound(err) {
		return instance, err
	}
	if left := s.createUnsettled(); left > 0 {
		s.preparing("Waiting for the settle time to pass, because an earlier call may still create an instance.")
		s.requeueIn(left)
		return nil, nil
	}
	return nil, s.openAttempt(ctx, attempt)
}

// createUnsettled returns for how much longer a Create call of this process or an earlier one may take effect unseen.
func (s *launchStep) createUnsettled() time.Duration {
	since := s.states.get(s.machine).launch.ambiguousAt
	if since.Before(s.leading) {
		since = s.leading
	}
	return since.Add(s.Cloud.CreateSettle()).Sub(s.now)
}

// openAttempt starts the next attempt, whose Create is a new call to the cloud. The number of the attempt must be
// durable before it is used.
func (s *launchStep) openAttempt(ctx context.Context, last bootstrap.Attempt) error {
	if s.Target != nil {
		// No instance may join with the token of the last attempt any more.
		if err := s.tokens.Delete(ctx, last); err != nil {
			return err
		}
	}
	launch := &v1beta1.LaunchStatus{Attempt: s.machine.NextLaunchAttempt()}
	if before := s.machine.Status.Launch; before != nil {
		launch.OldProviderID, launch.NoCapacitySince, launch.Refused = before.OldProviderID, before.NoCapacitySince, before.Refused
	}
	s.machine.Status.Launch, s.machine.Status.Applied = launch, nil
	s.preparing(fmt.Sprintf("Starting attempt %d to create the instance.", launch.Attempt))
	s.states.update(s.machine, func(m *machineState) { *m = machineState{} })
	if launch.Attempt == last.Number {
		s.requeueIn(time.Minute) // The number cannot grow any more. Avoid a busy loop.
		return nil
	}
	s.requeueIn(time.Millisecond)
	return nil
}

// renderUserData renders the user data template, with a bootstrap token if the template uses one. Its progress is not
// next if a new attempt has to be opened first.
func (s *launchStep) renderUserData(ctx context.Context, inputs resolve.Resolved,
	attempt bootstrap.Attempt) (provider.Secret,
	progress, error) {
	if len(inputs.UserData) == 0 {
		return provider.Secret{}, next, nil
	}
	values := bootstrap.Values{
		MachineName:      s.machine.Name,
		MachineNamespace: s.machine.Namespace,
		KubeletVersion:   s.machine.Spec.Version,
	}
	if s.Target != nil {
		api, err := s.Target.API()
		if err != nil {
			s.preparing("Cannot render the user data: the endpoint of the target cluster is not known yet: " + err.Error())
			return provider.Secret{}, onError, err
		}
		values.APIEndpoint, values.CABundle = api.URL, api.CABundle
	}
	// Check before creating the token: the token of a machine that gets no instance would stay until it expires.
	if err := bootstrap.Check(inputs.UserData, values); err != nil {
		s.refused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, onInputs, nil
	}
	if s.Target != nil && bootstrap.NeedsToken(inputs.UserData) {
		life := tokenLife(s.machine.Spec.Timeouts.CreationOrDefault())
		token, err := s.tokens.Ensure(ctx, attempt, bootstrap.Terms{Expires: s.now.Add(life),
			Signing: bootstrap.Uses(inputs.UserData, bootstrap.KubeadmJoinConfig)})
		if !errors.Is(err, bootstrap.ErrMayNotMake) {
			s.states.update(s.machine, func(m *machineState) { m.launch.token = true })
		}
		if err != nil {
			s.preparing("Cannot create the bootstrap token: " + err.Error())
			return provider.Secret{}, onError, err
		}
		if token.Expires.Sub(s.now) < tokenReserve+(life-tokenReserve)/2 {
			instance, err := s.findLaunched(ctx, inputs, attempt)
			switch {
			case err != nil:
				return provider.Secret{}, s.failed(err, fingerprintOf(s.machine, inputs, attempt)), nil
			case instance == nil:
				return provider.Secret{}, atTime, nil
			}
			if proceed, err := s.recordInstance(ctx, inputs, instance); err != nil || proceed != next {
				return provider.Secret{}, proceed, err
			}
			return provider.Secret{}, s.after(time.Millisecond), nil
		}
		values.BootstrapToken = token.Value
	}
	out, err := bootstrap.Render(inputs.UserData, values)
	if err != nil {
		s.refused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, onInputs, nil
	}
	if inputs.CompressUserData {
		out = bootstrap.Compress(out)
	}
	return provider.NewSecret(out), next, nil
}

// attempt identifies the current attempt.
func (s *launchStep) attempt() bootstrap.Attempt {
	return bootstrap.Attempt{Machine: client.ObjectKeyFromObject(s.machine), UID: s.machine.UID,
		Number: s.machine.LaunchAttempt()}
}

// fingerprintOf changes whenever another Create call could have another outcome, because its inputs changed or an
// administrator requested a retry. It is kept in memory only and compared for equality. The hash keeps secrets out of
// it.
func fingerprintOf(m *v1beta1.Machine, inputs resolve.Resolved, attempt bootstrap.Attempt) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", attempt, m.Spec.Version, inputs.ClassName)
	retry, asked := m.Annotations[v1beta1.AnnotationRetry]
	fmt.Fprintf(h, "%t\x00%d\x00%s\x00%t", asked, len(retry), retry, inputs.CompressUserData)
	for _, part := range [][]byte{inputs.ProviderSpec, inputs.UserData} {
		fmt.Fprintf(h, "%d\x00", len(part))
		h.Write(part)
	}
	for _, key := range inputs.Credentials.Keys() {
		value, _ := inputs.Credentials.Get(key)
		fmt.Fprintf(h, "%s\x00%d\x00", key, len(value.Reveal()))
		h.Write(value.Reveal())
	}
	return hex.EncodeToString(h.Sum(nil))
}
