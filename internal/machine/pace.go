package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// pace is when a failed Create, Update or Delete may be repeated. Events of a Node or another object cause passes at
// any time, but none of them repeats a failed call earlier.
type pace struct {
	// tried is the fingerprint of the inputs of the last failed call. Other inputs are tried at once.
	tried string
	// notBefore is when the same inputs may be tried again. Zero means that only other inputs are tried.
	notBefore time.Time
	// askedUntil is the time until which the cloud asked not to be called, or zero if the cloud did not ask.
	askedUntil time.Time
	// failures is how many of these calls failed in a row.
	failures int32
	// reason and message describe how the last call failed.
	reason, message string
	// early is true if the next or the last try was moved forward because a call for another machine succeeded.
	early bool
}

// left returns how long a call with these inputs has to wait. never is true if only other inputs are tried.
func (c pace) left(fingerprint string, now time.Time) (wait time.Duration, never bool) {
	if c.tried != fingerprint {
		return 0, false
	}
	return max(c.notBefore.Sub(now), 0), c.notBefore.IsZero()
}

// deleteFingerprint identifies the inputs of a call that deletes an instance, or looks it up for its deletion.
func (s *teardownStep) deleteFingerprint(inputs resolve.Resolved) string {
	forced := ""
	if s.forced() {
		forced = "by force " // A force-deletion is tried as soon as the cloud allows it.
	}
	return "delete " + forced + fingerprintOf(s.machine, inputs, s.launch.attempt())
}

// awaitTry waits if the last call of the deletion failed and the next one is not due.
func (s *teardownStep) awaitTry(inputs resolve.Resolved) progress {
	last := s.states.get(s.machine).pace
	left, never := last.left(s.deleteFingerprint(inputs), s.now)
	if s.forced() {
		left = max(left, last.askedUntil.Sub(s.now))
	}
	if never || left == 0 {
		return next
	}
	s.failing = true
	s.deleting(last.reason, last.message)
	return s.after(left)
}

// operationFailed records a failed call, the number of failures in a row and the time of the next try. It returns what
// triggers that try.
func (p *pass) operationFailed(kind v1beta1.OperationType, c retryPolicy, err error, fingerprint string) progress {
	proceed := onInputs
	failures, state := p.failuresOf(kind), v1beta1.OperationProcessing
	before := p.states.get(p.machine).pace
	if before.tried == fingerprint {
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
		m.pace = pace{tried: fingerprint, notBefore: retry, failures: failures, reason: c.reason, message: messageOf(err)}
		if d := provider.RetryAfter(err); d > 0 {
			m.pace.askedUntil = now.Add(d)
		}
	})
	if early := before.early && before.tried == fingerprint; !early && waitsForCloud(provider.CodeOf(err)) {
		p.recovery.wait(client.ObjectKeyFromObject(p.machine), now, now.Add(provider.RetryAfter(err)))
	}
	return proceed
}
