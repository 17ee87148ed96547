package machine

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// pace is when a Create, Update or Delete that failed may be sent again. Events of a Node and of other objects lead to
// passes at any time; none of them repeats a failed call earlier.
type pace struct {
	// tried is the fingerprint of the inputs of the last failed call. Other inputs are tried at once.
	tried string
	// notBefore is when the same inputs may be tried again; zero: not before they change.
	notBefore time.Time
	// askedUntil is until when the cloud asked not to be called, zero if it did not.
	askedUntil time.Time
	// failures is how many of these calls failed in a row.
	failures int32
	// reason and message say how the last call failed.
	reason, message string
	// early is true if the coming try, or the last one, was moved forward because the cloud answered for other machines.
	early bool
}

// left returns how long a call with these inputs has to wait. never is true where only other inputs are tried.
func (c pace) left(fingerprint string, now time.Time) (wait time.Duration, never bool) {
	if c.tried != fingerprint {
		return 0, false
	}
	return max(c.notBefore.Sub(now), 0), c.notBefore.IsZero()
}

// deleteFingerprint identifies the inputs of a call by which an instance is removed, or looked up for that.
func (s *teardownStep) deleteFingerprint(inputs resolve.Resolved) string {
	forced := ""
	if s.forced() {
		forced = "by force " // It is tried as soon as the cloud allows that.
	}
	return "delete " + forced + fingerprintOf(s.machine, inputs, s.launch.attempt())
}

// awaitTry waits while the last call of the removal failed and the next one is not due.
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

// operationFailed records a failed call, how many there were in a row and when the next one is due. It returns what
// leads to that one.
func (p *pass) operationFailed(kind v1beta1.OperationType, c retryPolicy, err error, fingerprint string) progress {
	proceed := onInputs
	failures, state := p.failuresOf(kind), v1beta1.OperationProcessing
	before := p.states.get(p.machine).pace
	if before.tried == fingerprint {
		failures = max(failures, before.failures) // The status with the last one may not be written.
	}
	failures = oneMore(failures)
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
