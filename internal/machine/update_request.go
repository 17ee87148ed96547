package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// The cloud keeps no record of updates in place. A request whose answer was lost may have been carried out, or may
// still take effect after the change is reverted. So the status records the request before it is sent, and keeps the
// record until the instance is known to match the latest request.

// updateRequested reports whether an update was, or is about to be, requested and its result is not known. Then the
// instance may differ from what is recorded as applied, and reverting the change is an update as well.
func updateRequested(m *v1beta1.Machine) bool {
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

// begin records durably that an update is requested, or checks that this is recorded. It fails if the Machine has
// changed in the meantime, because the change that a late cache shows may have been reverted.
func (s *updateStep) begin(ctx context.Context) error {
	if updateRequested(s.before) {
		return s.confirm(ctx, "updating its instance")
	}
	const message = "Asking the provider to update the instance."
	s.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending, message)
	s.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	s.summarize()
	if err := s.writeStatus(ctx); err != nil {
		return err
	}
	if !updateRequested(s.before) {
		return errStale // The Machine is gone, so the record was not written.
	}
	s.states.update(s.machine, func(m *machineState) { m.update = updateState{begun: true} })
	return nil
}

// noteAmbiguous records an error after which the request may still take effect. This is harmless if the next request is
// the same, but the change may be reverted by then.
func (s *updateStep) noteAmbiguous(err error, fingerprint string) {
	if !provider.CodeOf(err).Ambiguous() {
		return
	}
	s.states.update(s.machine, func(m *machineState) {
		u := &m.update
		if !u.ambiguousAt.IsZero() && u.ambiguous != fingerprint {
			fingerprint = "" // There were different requests.
		}
		u.ambiguousAt, u.ambiguous = s.Clock.Now(), fingerprint
	})
}

// unsettled returns the time during which an earlier, different request may still change the instance. This is a
// request of this process that had no answer, or a request of an earlier process.
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
