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

// tokenReserve is how long a bootstrap token stays valid after the Machine's time to join is over. An outage of the
// target cluster does not count as time to join (rule join-timeout-fails-machine). A cluster removes expired tokens as
// soon as it has recovered. The token is deleted earlier if the Machine joins or fails.
const tokenReserve = time.Hour

// maxTokenLife is the maximum validity of a bootstrap token without tokenReserve. Until the token expires, anyone who
// can read an instance's user data can join with it. The controller extends the token as long as the machine may still
// join.
const maxTokenLife = 4 * time.Hour

func tokenLife(left time.Duration) time.Duration { return min(left, maxTokenLife) + tokenReserve }

// extendToken extends the token of a machine whose time to join is longer than the validity of the token. Other steps
// still run after an error, because the token stays valid for tokenReserve.
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

// findLaunched looks for an instance that an earlier Create may have created although its answer was lost. If there is
// none, findLaunched waits for the settle time and then opens the next attempt. If findLaunched returns neither an
// instance nor an error, the Machine is requeued.
func (s *launchStep) findLaunched(ctx context.Context, inputs resolve.Resolved,
	attempt bootstrap.Attempt) (*provider.Instance, error) {
	instance, err := s.instance.get(ctx, inputs)
	if err == nil || !provider.IsNotFound(err) {
		return instance, err
	}
	if left := s.createUnsettled(); left > 0 {
		s.reportPreparing("Waiting for the settle time to pass, because an earlier call may still create an instance.")
		s.requeueIn(left)
		return nil, nil
	}
	return nil, s.openAttempt(ctx, attempt)
}

// createUnsettled returns how much longer an earlier Create may still create an instance. The call may come from this
// process or another one.
func (s *launchStep) createUnsettled() time.Duration {
	since := s.states.get(s.machine).launch.ambiguousAt
	if since.Before(s.leading) {
		since = s.leading
	}
	return since.Add(s.Cloud.CreateSettle()).Sub(s.now)
}

// openAttempt starts the next attempt. The cloud treats the Create of another attempt as another request. The attempt's
// number must be written to the status before it is used.
func (s *launchStep) openAttempt(ctx context.Context, last bootstrap.Attempt) error {
	if s.Target != nil {
		// From now on, no instance may join with the token of the last attempt.
		if err := s.tokens.Delete(ctx, last); err != nil {
			return err
		}
	}
	launch := &v1beta1.LaunchStatus{Attempt: s.machine.NextLaunchAttempt()}
	if before := s.machine.Status.Launch; before != nil {
		launch.OldProviderID, launch.NoCapacitySince, launch.Refused = before.OldProviderID, before.NoCapacitySince, before.Refused
	}
	s.machine.Status.Launch, s.machine.Status.Applied = launch, nil
	s.reportPreparing(fmt.Sprintf("Starting attempt %d to create the instance.", launch.Attempt))
	s.states.update(s.machine, func(m *machineState) { *m = machineState{} })
	if launch.Attempt == last.Number {
		s.requeueIn(time.Minute) // The number has reached its maximum. Avoid a busy loop.
		return nil
	}
	s.requeueIn(time.Millisecond)
	return nil
}

// renderUserData renders the user data template and creates the bootstrap token that the template uses. If a new
// attempt must be opened first, the returned progress is not next.
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
			s.reportPreparing("Cannot render the user data: the endpoint of the target cluster is not known yet: " + err.Error())
			return provider.Secret{}, onError, err
		}
		values.APIEndpoint, values.CABundle = api.URL, api.CABundle
	}
	// Check the template before the token is created. If no instance is created, the token would remain until it expires.
	if err := bootstrap.Check(inputs.UserData, values); err != nil {
		s.reportRefused(v1beta1.ReasonInvalidConfiguration, err.Error())
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
			s.reportPreparing("Cannot create the bootstrap token: " + err.Error())
			return provider.Secret{}, onError, err
		}
		if token.Expires.Sub(s.now) < tokenReserve+(life-tokenReserve)/2 {
			instance, err := s.findLaunched(ctx, inputs, attempt)
			switch {
			case err != nil:
				return provider.Secret{}, s.recordCreateFailure(err, fingerprintOf(s.machine, inputs, attempt)), nil
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
		s.reportRefused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, onInputs, nil
	}
	if inputs.CompressUserData {
		out = bootstrap.Compress(out)
	}
	return provider.NewSecret(out), next, nil
}

func (s *launchStep) attempt() bootstrap.Attempt {
	return bootstrap.Attempt{Machine: client.ObjectKeyFromObject(s.machine), UID: s.machine.UID,
		Number: s.machine.LaunchAttempt()}
}

// fingerprintOf returns a hash of everything that can change the outcome of a Create. This includes the annotation with
// which an administrator requests a retry. The hash contains no secrets and is kept in memory only.
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
