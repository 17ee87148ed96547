package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// Of a change in place the cloud keeps no account: a request whose answer was lost may have been carried out, or may
// still be on its way, when the change is taken back. So that it is asked for is written down first, and remains
// written until the instance is known to be what was asked for last.

// askedToUpdate reports whether the provider was, or is about to be, asked for a change without a known result. Then
// what is recorded as applied may not be what the instance is, and taking the change back is a change as well.
func askedToUpdate(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	if c == nil || c.Status == metav1.ConditionTrue {
		return false
	}
	switch c.Reason {
	case v1beta1.ReasonUpdating, v1beta1.ReasonUpdateTimeout, v1beta1.ReasonWaitingForAgent:
		return true
	case v1beta1.ReasonUpdateError, v1beta1.ReasonUpdatePending:
		last := m.Status.LastOperation
		return last != nil && last.Type == v1beta1.OperationUpdate &&
			(last.Code != "" || last.State == v1beta1.OperationProcessing)
	}
	return false
}

// begin makes durable that the provider is asked for a change, or sees that this is so. It fails if the Machine has
// changed meanwhile: what a late cache asks for may have been taken back.
func (s *updateStep) begin(ctx context.Context) error {
	if askedToUpdate(s.before) {
		return s.confirm(ctx, "its instance is changed")
	}
	const message = "The provider is asked for the change."
	s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending, message)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	s.summarize()
	if err := s.writeStatus(ctx); err != nil {
		return err
	}
	if !askedToUpdate(s.before) {
		return errStale // It was not written, since the Machine is gone.
	}
	s.states.update(s.machine, func(m *machineState) { m.update = updateState{begun: true} })
	return nil
}

// unanswered takes note of an error after which the request may still take effect. What it asks for again would be no
// harm, but it may be what has been taken back by then.
func (s *updateStep) unanswered(err error, fingerprint string) {
	if !provider.CodeOf(err).Ambiguous() {
		return
	}
	s.states.update(s.machine, func(m *machineState) {
		u := &m.update
		if !u.ambiguousAt.IsZero() && u.ambiguous != fingerprint {
			fingerprint = "" // One of several.
		}
		u.ambiguousAt, u.ambiguous = s.Clock.Now(), fingerprint
	})
}

// unsettled returns for how long an earlier request may still make the instance another one than is asked for now: one
// of this process that had no answer, or one of a process before it.
func (s *updateStep) unsettled(fingerprint string) time.Duration {
	u := s.states.get(s.machine).update
	var since time.Time
	if u.ambiguous != fingerprint {
		since = u.ambiguousAt
	}
	if !u.begun {
		since = later(since, s.leading)
	}
	if since.IsZero() {
		return 0
	}
	return since.Add(s.Cloud.CreateSettle()).Sub(s.now)
}
