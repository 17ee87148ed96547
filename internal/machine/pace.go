package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// pace contains the earliest time to repeat a failed Create, Update or Delete. Events can trigger passes at any time,
// but a pass before this time does not repeat the call.
type pace struct {
	// triedInputs is the fingerprint of the inputs of the last failed call. Other inputs are tried at once.
	triedInputs string
	// notBefore is the time from which a call with the same inputs may be repeated. If the time is zero, the call is
	// repeated only with other inputs.
	notBefore time.Time
	// askedUntil is the time before which the cloud wants no more calls. askedUntil is zero if the cloud has not
	// named such a time.
	askedUntil      time.Time
	failures        int32
	reason, message string
	// isEarly is true if an attempt was moved forward because a call for another machine had succeeded.
	isEarly bool
}

// waitTime returns the time until a call with these inputs may be sent. If the call must not be repeated with these
// inputs at all, never is true.
func (c pace) waitTime(fingerprint string, now time.Time) (wait time.Duration, never bool) {
	if c.triedInputs != fingerprint {
		return 0, false
	}
	return max(c.notBefore.Sub(now), 0), c.notBefore.IsZero()
}

func (r *removal) deleteFingerprint(inputs resolve.Inputs) string {
	how := ""
	if forced(r.machine) {
		how = "by force " // A force-deletion is tried as soon as the cloud allows it.
	}
	return "delete " + how + fingerprintOf(r.machine, inputs, attemptOf(r.machine))
}

func (r *removal) awaitTry(inputs resolve.Inputs) progress {
	last := r.states.get(r.machine).pace
	left, never := last.waitTime(r.deleteFingerprint(inputs), r.now)
	if forced(r.machine) {
		left = max(left, last.askedUntil.Sub(r.now))
	}
	if never || left == 0 {
		return next
	}
	r.failing = true
	r.reportDeleting(last.reason, last.message)
	return r.after(left)
}

// operationFailed records a failed call, the number of consecutive failures and the time of the next attempt. It
// returns what triggers the next attempt.
func (p *pass) operationFailed(kind v1beta1.OperationType, c retryPolicy, err error, fingerprint string) progress {
	proceed := onInputs
	failures, state := failuresOf(p.machine, kind), v1beta1.OperationProcessing
	before := p.states.get(p.machine).pace
	if before.triedInputs == fingerprint {
		failures = max(failures, before.failures) // The status with the last failure may not have been written.
	}
	failures = increment(failures)
	if c.isRejection() {
		state = v1beta1.OperationFailed
	}
	p.operation(kind, state, messageOf(err), provider.CodeOf(err))
	now, retry := p.Clock.Now(), time.Time{} // The call may have taken long.
	if !c.terminal() {
		d := c.backoff(failures, provider.RetryAfter(err), string(p.machine.UID))
		retry = now.Add(d)
		proceed |= p.after(d)
	}
	if last := p.machine.Status.LastOperation; last != nil && last.Type == kind {
		last.Attempts, last.NextTryTime = failures, nil
		if !retry.IsZero() {
			last.NextTryTime = &metav1.Time{Time: retry}
		}
	}
	p.states.update(p.machine, func(m *machineState) {
		m.pace = pace{triedInputs: fingerprint, notBefore: retry, failures: failures, reason: c.reason,
			message: messageOf(err)}
		if d := provider.RetryAfter(err); d > 0 {
			m.pace.askedUntil = now.Add(d)
		}
	})
	if early := before.isEarly && before.triedInputs == fingerprint; !early && waitsForCloud(provider.CodeOf(err)) {
		p.recovery.addWaiting(client.ObjectKeyFromObject(p.machine), now, now.Add(provider.RetryAfter(err)))
	}
	return proceed
}
