package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// The cloud keeps no record of updates in place. If the answer to a request was lost, the update may already be done,
// or it may be done after the change is reverted. The request is therefore recorded in the status before it is sent.
// The record is kept until the instance is known to match the last request.

// updateRequested reports whether an update was requested, or will be requested soon, and its result is unknown. The
// instance may then differ from the recorded configuration, so even a reverted change needs an update.
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

// recordRequest writes to the status that an update is requested. If the status already contains this, it only checks
// that the Machine has not changed. If the Machine has changed in the meantime, recordRequest fails, because the change
// of the spec may already have been reverted.
func (p *pass) recordRequest(ctx context.Context) error {
	if updateRequested(p.original) {
		return p.confirm(ctx, "updating its instance")
	}
	const message = "Asking the provider to update the instance."
	p.setCondition(v1beta1.ConditionUpToDate, false, v1beta1.ReasonUpdatePending, message)
	p.operation(v1beta1.OperationUpdate, v1beta1.OperationProcessing, message, "")
	p.summarize()
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	if !updateRequested(p.original) {
		return errStale // The Machine is gone, so the record was not written.
	}
	p.states.update(p.machine, func(m *machineState) { m.update = updateState{begun: true} })
	return nil
}

// noteAmbiguous records that a request has failed but may still change the instance later. A late effect is harmful
// only if the next request is different, for example because a user has reverted the change.
func (p *pass) noteAmbiguous(err error, fingerprint string) {
	if !provider.CodeOf(err).Ambiguous() {
		return
	}
	p.states.update(p.machine, func(m *machineState) {
		u := &m.update
		if !u.ambiguousAt.IsZero() && u.ambiguous != fingerprint {
			fingerprint = "" // The requests differ.
		}
		u.ambiguousAt, u.ambiguous = p.Clock.Now(), fingerprint
	})
}

// settlesIn returns how much longer an earlier request may still change the instance. A request with the given
// fingerprint is ignored, because its effect is wanted. Earlier requests are those that this process sent without
// getting an answer, and those of former processes.
func (p *pass) settlesIn(fingerprint string) time.Duration {
	u := p.states.get(p.machine).update
	var since time.Time
	if u.ambiguous != fingerprint {
		since = u.ambiguousAt
	}
	if !u.begun {
		since = later(since, p.leading)
	}
	if since.IsZero() {
		return 0
	}
	return since.Add(p.Cloud.CreateSettle()).Sub(p.now)
}
