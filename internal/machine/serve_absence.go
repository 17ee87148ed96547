package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// A cloud may answer NotFound for an instance that exists. With eventual consistency, this happens for some seconds
// after the creation, and later if a read reaches an outdated replica. If an instance counts as absent, the controller
// replaces its Machine and deletes the instance. Therefore, only the code in this file may conclude from NotFound or
// Gone that an instance is absent. All of these conditions must hold:
//
//   - The instance is no longer being created (status.launch.createHandle), or the creation timeout is over.
//   - The driver's settle time has passed since the instance was created or adopted.
//   - Two reads in a row returned NotFound. A successful read, a failed read and a Ready Node reset the count.
//   - The cloud finds other instances that are known to run (serve_absence_witness.go).

const maxRecheck = 15 * time.Second

// recheckAfter returns the minimum time between the first and the second read. A quarter of the settle time gives an
// outdated replica enough time to catch up. A preempted instance is still replaced within seconds.
func recheckAfter(settle time.Duration) time.Duration { return min(settle/4, maxRecheck) }

// longLaunched is the age at which the cloud must show an instance, even if another process created the instance. This
// age is longer than the longest call to the cloud and the maximum clock skew between two processes together.
const longLaunched = 10 * time.Minute

// showsWithin returns how long the cloud may still fail to show the recorded instance. If the result is zero or less,
// the cloud must already show the instance. If another process created the instance, its call ended before this process
// became the leader.
func (p *pass) showsWithin() time.Duration {
	settle := p.Cloud.CreateSettle()
	since := p.states.createdAt(p.machine)
	if since.IsZero() {
		launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
		switch {
		case launched == nil:
		case launched.Reason == v1beta1.ReasonInstanceVanished:
			return 0 // An earlier pass found that the instance is absent.
		case launched.Status == metav1.ConditionTrue && p.now.Sub(launched.LastTransitionTime.Time) >= longLaunched+settle:
			return 0
		}
		since = p.leading
	}
	return since.Add(settle).Sub(p.now)
}

// createsWithin returns how long the cloud may still create the instance in an operation that shows nothing. The result
// is zero or less if no such operation is known.
func (p *pass) createsWithin() time.Duration {
	if p.machine.CreateHandle() == "" {
		return 0
	}
	return joinStart(p.machine).Add(p.machine.Spec.Timeouts.CreationOrDefault()).Sub(p.now)
}

// countsAsAbsent records that the cloud answered NotFound to a read by provider ID. It returns true if the instance
// counts as absent. If more reads are needed, the Machine is requeued.
func (p *pass) countsAsAbsent(ctx context.Context, inputs resolve.Inputs) bool {
	if left := p.createsWithin(); left > 0 {
		p.requeueIn(min(left, p.pollInterval()))
		return false
	}
	if left := p.showsWithin(); left > 0 {
		p.states.update(p.machine, func(m *machineState) { m.instance.isConfirmed = false })
		p.requeueIn(left)
		return false
	}
	recheck := recheckAfter(p.Cloud.CreateSettle())
	first := p.states.get(p.machine).instance.missingSince
	if first.IsZero() {
		first = p.Clock.Now() // The interval begins with this answer, not with the start of the pass.
		p.states.update(p.machine, func(m *machineState) { m.instance.missingSince, m.instance.isConfirmed = first, false })
	} else if p.now.Sub(first) >= recheck {
		return p.absenceConfirmed(ctx, inputs)
	}
	p.requeueIn(first.Add(recheck).Sub(p.now))
	return false
}

func (p *pass) noteShown() {
	if !p.states.get(p.machine).instance.missingSince.IsZero() {
		p.states.update(p.machine, func(m *machineState) {
			m.instance.missingSince, m.instance.deniedAt = time.Time{}, time.Time{}
		})
	}
}

// followAbsent handles a Machine whose instance is not shown by the cloud. If the status already contains the instance
// (known is true), the status stays unchanged until the instance counts as absent.
func (p *pass) followAbsent(ctx context.Context, inputs resolve.Inputs, known bool) progress {
	if p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return onMachine // The owner replaces the Machine.
	}
	if p.countsAsAbsent(ctx, inputs) {
		p.recordVanished()
		return onMachine
	}
	if !known {
		p.reportLaunching("Waiting for the provider to show the instance.")
	}
	return p.after(p.pollInterval()).unless(known)
}

// confirmGone checks the answer Gone of Delete: whether the cloud really has no instance. Many drivers look up the
// instance before they delete it. Such a driver also returns Gone if the cloud does not show the instance yet. Without
// this check, the Machine would be deleted and the instance would remain.
func (r *removal) confirmGone(ctx context.Context, inputs resolve.Inputs,
	result provider.DeleteResult) progress {
	switch {
	case r.deletionAccepted():
		return next
	case result.Found:
		return r.recordGone()
	}
	poll := pollInterval(r.now.Sub(r.nothingToDeleteSince()))
	if left := r.showsWithin(); left > 0 {
		r.reportDeleting(v1beta1.ReasonCreateSettling,
			"The provider does not show the instance. Waiting for the settle time to pass, "+
				"because a new instance may appear late.")
		return r.after(min(left, poll))
	}
	instance, err := r.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if err := r.confirmNotFound(ctx, inputs); err != nil {
			r.failing = true
			r.reportDeleting(v1beta1.ReasonProviderUnavailable, messageOf(err))
			return r.after(askWitnessesAgain)
		}
		return r.recordGone()
	case err != nil:
		return r.deleteFailed(err, inputs)
	case instance.OwnedBy(r.ClusterID, identity(r.machine)) != nil:
		return r.recordGone() // The provider ID now belongs to another instance.
	}
	r.reportDeleting(v1beta1.ReasonInstanceTerminating, "The provider reported that the instance is gone, but still shows it. Deleting it again.")
	return r.after(poll)
}

func (r *removal) recordGone() progress {
	r.states.update(r.machine, func(m *machineState) { m.teardown.deletionAccepted = true })
	r.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The instance is gone.", "")
	return next
}

// deletionAccepted reports whether the deletion needs no further check. No check is needed if the cloud has accepted
// the deletion of the instance, or a check has confirmed that the instance is gone.
func (r *removal) deletionAccepted() bool {
	if r.states.get(r.machine).teardown.deletionAccepted {
		return true
	}
	last := r.machine.Status.LastOperation
	return last != nil && last.Type == v1beta1.OperationDelete && last.State == v1beta1.OperationProcessing &&
		last.Code == ""
}

// nothingToDeleteSince returns the time at which Delete first reported, during this deletion, that there is no
// instance.
func (r *removal) nothingToDeleteSince() time.Time {
	since := r.states.get(r.machine).teardown.nothingFoundSince
	if since.IsZero() {
		since = r.now
		r.states.update(r.machine, func(m *machineState) { m.teardown.nothingFoundSince = since })
	}
	return since
}

// CheckInstance requests a check of whether the Machine's recorded instance still exists in the cloud. The call does
// not wait for the check.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.Enqueue(client.ObjectKeyFromObject(m))
}

// checkSuspect runs the check that CheckInstance has requested. It reports whether the instance is gone.
func (p *pass) checkSuspect(ctx context.Context) (gone bool, err error) {
	suspectID := p.states.get(p.machine).instance.suspectID
	if suspectID == "" {
		return false, nil
	}
	decided := func() { p.states.update(p.machine, func(known *machineState) { known.instance.suspectID = "" }) }
	if suspectID != p.machine.Spec.ProviderID {
		decided()
		return false, nil
	}
	undecided, err := p.confirmInstance(ctx, true)
	gone = p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished
	if gone || err != nil || p.states.get(p.machine).instance.getFailures == 0 && !undecided {
		decided()
	}
	return gone, err
}
