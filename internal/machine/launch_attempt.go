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
// can read an instance's user data can join with the token. The controller extends the token as long as the machine
// may still join.
const maxTokenLife = 4 * time.Hour

func tokenLife(left time.Duration) time.Duration { return min(left, maxTokenLife) + tokenReserve }

// extendToken extends the token of a machine whose time to join is longer than the validity of the token. Other steps
// still run after an error, because the token stays valid for tokenReserve.
func (p *pass) extendToken(ctx context.Context) (progress, error) {
	m := p.machine
	if p.Target == nil || m.Spec.Timeouts.CreationOrDefault() <= maxTokenLife || m.Spec.ProviderID == "" ||
		m.Status.NodeRef != nil || p.hasRun() || m.Status.FailureReason != "" || machinestate.IsPaused(m) || p.outage() {
		return next, nil
	}
	due := p.states.get(m).launch.extendTokenAt
	if left := due.Sub(p.now); left > 0 {
		p.requeueIn(left)
		return next, nil
	}
	ends, err := p.tokens.Extend(ctx, attemptOf(m), p.now.Add(tokenReserve), p.now.Add(tokenLife(p.joinTimeLeft())))
	switch {
	case err != nil:
		logf.FromContext(ctx).Error(err, "Cannot extend the bootstrap token of a machine that has not joined yet")
		due = p.now.Add(time.Minute)
	case ends.IsZero():
		due = p.now.Add(maxTokenLife) // The machine has no token.
	default:
		due = ends.Add(-tokenReserve)
		due = later(due, p.now.Add(time.Minute))
	}
	p.states.update(m, func(m *machineState) { m.launch.extendTokenAt = due })
	p.requeueIn(due.Sub(p.now))
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
func (p *pass) findLaunched(ctx context.Context, inputs resolve.Inputs,
	attempt bootstrap.Attempt) (*provider.Instance, error) {
	instance, err := p.getInstance(ctx, inputs)
	if err == nil || !provider.IsNotFound(err) {
		return instance, err
	}
	if left := p.createUnsettled(); left > 0 {
		p.reportPreparing("Waiting for the settle time to pass, because an earlier call may still create an instance.")
		p.requeueIn(left)
		return nil, nil
	}
	return nil, p.openAttempt(ctx, attempt)
}

// createUnsettled returns how much longer an earlier Create may still create an instance. This process or another
// process may have sent the call.
func (p *pass) createUnsettled() time.Duration {
	since := p.states.get(p.machine).launch.ambiguousAt
	if since.Before(p.leading) {
		since = p.leading
	}
	return since.Add(p.Cloud.CreateSettle()).Sub(p.now)
}

// openAttempt starts the next attempt. The cloud treats the Create of another attempt as another request. The
// attempt's number must be in the status before the attempt begins.
func (p *pass) openAttempt(ctx context.Context, last bootstrap.Attempt) error {
	if p.Target != nil {
		// From now on, no instance may join with the token of the last attempt.
		if err := p.tokens.Delete(ctx, last); err != nil {
			return err
		}
	}
	launch := &v1beta1.LaunchStatus{Attempt: p.machine.NextLaunchAttempt()}
	if before := p.machine.Status.Launch; before != nil {
		launch.OldProviderID, launch.NoCapacitySince, launch.Refused = before.OldProviderID, before.NoCapacitySince, before.Refused
	}
	p.machine.Status.Launch, p.machine.Status.Applied = launch, nil
	p.reportPreparing(fmt.Sprintf("Starting attempt %d to create the instance.", launch.Attempt))
	p.states.update(p.machine, func(m *machineState) { *m = machineState{} })
	if launch.Attempt == last.Number {
		p.requeueIn(time.Minute) // The number has reached its maximum. Avoid a busy loop.
		return nil
	}
	p.requeueIn(time.Millisecond)
	return nil
}

// renderUserData renders the user data template and creates the bootstrap token that the template uses. If a new
// attempt must be opened first, the returned progress is not next.
func (p *pass) renderUserData(ctx context.Context, inputs resolve.Inputs,
	attempt bootstrap.Attempt) (provider.Secret,
	progress, error) {
	if len(inputs.UserData) == 0 {
		return provider.Secret{}, next, nil
	}
	values := bootstrap.Values{
		MachineName:      p.machine.Name,
		MachineNamespace: p.machine.Namespace,
		KubeletVersion:   p.machine.Spec.Version,
	}
	if p.Target != nil {
		api, err := p.Target.API()
		if err != nil {
			p.reportPreparing("Cannot render the user data: the endpoint of the target cluster is not known yet: " + err.Error())
			return provider.Secret{}, onError, err
		}
		values.APIEndpoint, values.CABundle = api.URL, api.CABundle
	}
	// Check the template before the token is created. If no instance is created, the token would remain until it expires.
	if err := bootstrap.Check(inputs.UserData, values); err != nil {
		p.reportRefused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, onInputs, nil
	}
	if p.Target != nil && bootstrap.NeedsToken(inputs.UserData) {
		life := tokenLife(p.machine.Spec.Timeouts.CreationOrDefault())
		token, err := p.tokens.Ensure(ctx, attempt, bootstrap.Terms{Expires: p.now.Add(life),
			Signing: bootstrap.HasPlaceholder(inputs.UserData, bootstrap.KubeadmJoinConfig)})
		if !errors.Is(err, bootstrap.ErrMayNotMake) {
			p.states.update(p.machine, func(m *machineState) { m.launch.token = true })
		}
		if err != nil {
			p.reportPreparing("Cannot create the bootstrap token: " + err.Error())
			return provider.Secret{}, onError, err
		}
		if token.Expires.Sub(p.now) < tokenReserve+(life-tokenReserve)/2 {
			instance, err := p.findLaunched(ctx, inputs, attempt)
			switch {
			case err != nil:
				return provider.Secret{}, p.recordCreateFailure(err, fingerprintOf(p.machine, inputs, attempt)), nil
			case instance == nil:
				return provider.Secret{}, atTime, nil
			}
			if proceed, err := p.recordInstance(ctx, inputs, instance, false); err != nil || proceed != next {
				return provider.Secret{}, proceed, err
			}
			return provider.Secret{}, p.after(time.Millisecond), nil
		}
		values.BootstrapToken = token.Value
	}
	out, err := bootstrap.Render(inputs.UserData, values)
	if err != nil {
		p.reportRefused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, onInputs, nil
	}
	if inputs.CompressUserData {
		out = bootstrap.Compress(out)
	}
	return provider.NewSecret(out), next, nil
}

// dropToken deletes the bootstrap token when the machine has joined, has failed or is gone. The call must precede the
// write of the status, so that a crash between the two leaves no token.
func (p *pass) dropToken(ctx context.Context) error {
	known := p.states.get(p.machine)
	if !known.launch.ownToken || known.launch.token {
		err := p.tokens.Delete(ctx, attemptOf(p.machine))
		// A process without permission to read tokens has no token to delete, unless the process created a token
		// before it lost the permission.
		if err != nil && (known.launch.token || !errors.Is(err, bootstrap.ErrMayNotRead)) {
			return err
		}
	}
	p.states.update(p.machine, func(m *machineState) { m.launch.ownToken, m.launch.token = false, false })
	return nil
}

func attemptOf(m *v1beta1.Machine) bootstrap.Attempt {
	return bootstrap.Attempt{Machine: client.ObjectKeyFromObject(m), UID: m.UID, Number: m.LaunchAttempt()}
}

// fingerprintOf returns a hash of everything that can change the outcome of a Create. The hash includes the
// annotation with which an administrator requests a retry. The hash contains no secrets and is kept in memory only.
func fingerprintOf(m *v1beta1.Machine, inputs resolve.Inputs, attempt bootstrap.Attempt) string {
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
