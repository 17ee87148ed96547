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
	"machinist.dev/machinist/internal/bootstrap"
	"machinist.dev/machinist/internal/machineclass/resolve"
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
func (p *pass) extendToken(ctx context.Context) (progress, error) {
	m := p.machine
	if p.Target == nil || m.Spec.Timeouts.CreationOrDefault() <= maxTokenLife || m.Spec.ProviderID == "" ||
		m.Status.NodeRef != nil ||
		p.hasRun() || m.Status.FailureReason != "" || paused(m) || p.outage() {
		return next, nil
	}
	due := p.states.get(m).launch.extendTokenAt
	if left := due.Sub(p.now); left > 0 {
		p.requeueIn(left)
		return next, nil
	}
	ends, err := p.tokens.Extend(ctx, p.attempt(), p.now.Add(tokenReserve), p.now.Add(tokenLife(p.joinTimeLeft())))
	switch {
	case err != nil:
		logf.FromContext(ctx).Error(err, "Cannot extend the bootstrap token of a machine that has not joined yet")
		due = p.now.Add(time.Minute)
	case ends.IsZero():
		due = p.now.Add(maxTokenLife) // It has none.
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

// findLaunched looks for an instance of this Machine whose answer was lost. Where there is none, the next attempt is
// opened once a Create still under way at the cloud would have shown.
func (p *pass) findLaunched(ctx context.Context, inputs resolve.Resolved,
	attempt bootstrap.Attempt) (*provider.Instance, error) {
	instance, err := p.getInstance(ctx, inputs)
	if err == nil || !provider.IsNotFound(err) {
		return instance, err
	}
	if left := p.createUnsettled(); left > 0 {
		p.preparing("Waiting until an instance that may have been asked for would have shown.")
		p.requeueIn(left)
		return nil, nil
	}
	return nil, p.openAttempt(ctx, attempt)
}

// createUnsettled returns how long a Create, of this process or of one before it, may still take effect unseen.
func (p *pass) createUnsettled() time.Duration {
	since := p.states.get(p.machine).launch.ambiguousAt
	if since.Before(p.leading) {
		since = p.leading
	}
	return since.Add(p.Cloud.CreateSettle()).Sub(p.now)
}

// openAttempt records that the next Create is a new one. It is durable before it is used.
func (p *pass) openAttempt(ctx context.Context, last bootstrap.Attempt) error {
	if p.Target != nil {
		// Nobody can join with it any more.
		if err := p.tokens.Delete(ctx, last); err != nil {
			return err
		}
	}
	launch := &v1beta1.LaunchStatus{Attempt: p.machine.NextLaunchAttempt()}
	if before := p.machine.Status.Launch; before != nil {
		launch.OldProviderID = before.OldProviderID
	}
	p.machine.Status.Launch = launch
	p.preparing(fmt.Sprintf("Attempt %d to create the instance begins.", launch.Attempt))
	p.states.update(p.machine, func(m *machineState) { *m = machineState{} })
	if launch.Attempt == last.Number {
		p.requeueIn(time.Minute) // The number cannot grow any more, so nothing else keeps this from going round at once.
		return nil
	}
	p.requeueIn(time.Millisecond)
	return nil
}

// renderUserData renders the template, with a bootstrap token if it asks for one. It waits (false) where a new attempt
// has to be opened first.
func (p *pass) renderUserData(ctx context.Context, inputs resolve.Resolved, attempt bootstrap.Attempt) (provider.Secret,
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
		values.APIEndpoint, values.CABundle = p.Target.APIEndpoint, p.Target.CABundle
	}
	if bootstrap.NeedsToken(inputs.UserData) && p.Target != nil {
		life := tokenLife(p.machine.Spec.Timeouts.CreationOrDefault())
		token, err := p.tokens.Ensure(ctx, attempt, p.now.Add(life))
		if !errors.Is(err, bootstrap.ErrMayNotMake) {
			p.states.update(p.machine, func(m *machineState) { m.launch.token = true })
		}
		if err != nil {
			p.preparing("The bootstrap token cannot be made: " + err.Error())
			return provider.Secret{}, wait, err
		}
		if token.Expires.Sub(p.now) < tokenReserve+(life-tokenReserve)/2 {
			instance, err := p.findLaunched(ctx, inputs, attempt)
			if err != nil {
				p.launchFailed(err, fingerprintOf(p.machine, inputs, attempt))
				return provider.Secret{}, wait, nil
			}
			if instance != nil {
				_, err = p.recordInstance(ctx, inputs, instance)
			}
			return provider.Secret{}, wait, err
		}
		values.BootstrapToken = token.Value
	}
	out, err := bootstrap.Render(inputs.UserData, values)
	if err != nil {
		p.launchRefused(v1beta1.ReasonInvalidConfiguration, err.Error())
		return provider.Secret{}, wait, nil
	}
	return provider.NewSecret(out), next, nil
}

// attempt names the current attempt.
func (p *pass) attempt() bootstrap.Attempt {
	return bootstrap.Attempt{Machine: client.ObjectKeyFromObject(p.machine), UID: p.machine.UID,
		Number: p.machine.LaunchAttempt()}
}

// fingerprintOf changes whenever trying Create again could have another outcome for a reason of ours, or a person
// asks for a try. It is kept in memory only and compared for equality; the hash keeps secrets out of it.
func fingerprintOf(m *v1beta1.Machine, inputs resolve.Resolved, attempt bootstrap.Attempt) string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\x00%s\x00%s\x00", attempt, m.Spec.Version, inputs.ClassName)
	retry, asked := m.Annotations[v1beta1.AnnotationRetry]
	fmt.Fprintf(h, "%t\x00%d\x00%s", asked, len(retry), retry)
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
