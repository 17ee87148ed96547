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

// tokenReserve is for how much longer a bootstrap token is good than the Machine has time to join: the time in which
// the target cluster is unreachable does not count (rule join-timeout-fails-machine), and a cluster that is back
// removes at once what expired meanwhile. With the Machine that has joined, or failed to, the token goes in any case.
const tokenReserve = time.Hour

// maxTokenLife is how long a bootstrap token is good at most, beside tokenReserve. Whoever reads the user data of an
// instance can join with it until then. It is extended while its machine may still join.
const maxTokenLife = 4 * time.Hour

// tokenLife returns how long a token is good whose machine has so much time to join.
func tokenLife(left time.Duration) time.Duration { return min(left, maxTokenLife) + tokenReserve }

// extendToken keeps the token of a machine good that has more time to join than a token lives. That it fails holds
// nothing else up: the token is still good for an hour then.
func (s *launchStep) extendToken(ctx context.Context) (progress, error) {
	m := s.machine
	if s.Target == nil || m.Spec.Timeouts.CreationOrDefault() <= maxTokenLife || m.Spec.ProviderID == "" ||
		m.Status.NodeRef != nil ||
		s.hasRun() || m.Status.FailureReason != "" || machinestate.Paused(m) || s.outage() {
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
		due = s.now.Add(maxTokenLife) // It has none.
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

// findLaunched looks for an instance of this Machine whose answer was lost. Where there is none, the next attempt is
// opened once a Create still under way at the cloud would have shown. Without an instance, another pass follows at a
// time.
func (s *launchStep) findLaunched(ctx context.Context, inputs resolve.Resolved,
	attempt bootstrap.Attempt) (*provider.Instance, error) {
	instance, err := s.instance.get(ctx, inputs)
	if err == nil || !provider.IsNotFound(err) {
		return instance, err
	}
	if left := s.createUnsettled(); left > 0 {
		s.preparing("Waiting until an instance that may have been asked for would have shown.")
		s.requeueIn(left)
		return nil, nil
	}
	return nil, s.openAttempt(ctx, attempt)
}

// createUnsettled returns how long a Create, of this process or of one before it, may still take effect unseen.
func (s *launchStep) createUnsettled() time.Duration {
	since := s.states.get(s.machine).launch.ambiguousAt
	if since.Before(s.leading) {
		since = s.leading
	}
	return since.Add(s.Cloud.CreateSettle()).Sub(s.now)
}

// openAttempt records that the next Create is a new one. It is durable before it is used.
func (s *launchStep) openAttempt(ctx context.Context, last bootstrap.Attempt) error {
	if s.Target != nil {
		// Nobody can join with it any more.
		if err := s.tokens.Delete(ctx, last); err != nil {
			return err
		}
	}
	launch := &v1beta1.LaunchStatus{Attempt: s.machine.NextLaunchAttempt()}
	if before := s.machine.Status.Launch; before != nil {
		launch.OldProviderID, launch.NoCapacitySince, launch.Refused = before.OldProviderID, before.NoCapacitySince, before.Refused
	}
	s.machine.Status.Launch, s.machine.Status.Applied = launch, nil
	s.preparing(fmt.Sprintf("Attempt %d to create the instance begins.", launch.Attempt))
	s.states.update(s.machine, func(m *machineState) { *m = machineState{} })
	if launch.Attempt == last.Number {
		s.requeueIn(time.Minute) // The number cannot grow any more, so nothing else keeps this from going round at once.
		return nil
	}
	s.requeueIn(time.Millisecond)
	return nil
}

// renderUserData renders the template, with a bootstrap token if it asks for one. It waits (false) where a new attempt
// has to be opened first.
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
			s.preparing("It is not known yet how the instance reaches the target cluster: " + err.Error())
			return provider.Secret{}, onError, err
		}
		values.APIEndpoint, values.CABundle = api.URL, api.CABundle
	}
	// A token of a machine that gets no instance would stay until it expires.
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
			s.preparing("The bootstrap token cannot be made: " + err.Error())
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

// attempt names the current attempt.
func (s *launchStep) attempt() bootstrap.Attempt {
	return bootstrap.Attempt{Machine: client.ObjectKeyFromObject(s.machine), UID: s.machine.UID,
		Number: s.machine.LaunchAttempt()}
}

// fingerprintOf changes whenever trying Create again could have another outcome for a reason of ours, or a person
// asks for a try. It is kept in memory only and compared for equality; the hash keeps secrets out of it.
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
