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
//   - The driver's settle time has passed since the instance was created or adopted.
//   - Two reads in a row returned NotFound. A successful read, a failed read and a Ready Node reset the count.
//   - The cloud finds other instances that are known to run (absence_witness.go).

const maxRecheck = 15 * time.Second

// recheckAfter returns the minimum time between the first and the second read. A quarter of the settle time gives an
// outdated replica enough time to catch up. A preempted instance is still replaced within seconds.
func recheckAfter(settle time.Duration) time.Duration { return min(settle/4, maxRecheck) }

// longLaunched is the age at which the cloud must show an instance, even if another process created the instance. It
// exceeds the longest call plus the maximum clock skew between two processes.
const longLaunched = 10 * time.Minute

// showsWithin returns how long the cloud may still fail to show the recorded instance. If the result is zero or less,
// the cloud must already show the instance. If another process created the instance, its call ended before this process
// became the leader.
func (s *instanceStep) showsWithin() time.Duration {
	settle := s.Cloud.CreateSettle()
	since := s.states.createdAt(s.machine)
	if since.IsZero() {
		launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
		switch {
		case launched == nil:
		case launched.Reason == v1beta1.ReasonInstanceVanished:
			return 0 // An earlier pass found that the instance is absent.
		case launched.Status == metav1.ConditionTrue && s.now.Sub(launched.LastTransitionTime.Time) >= longLaunched+settle:
			return 0
		}
		since = s.leading
	}
	return since.Add(settle).Sub(s.now)
}

// countsAsAbsent records that the cloud answered NotFound to a read by provider ID. It reports whether the instance
// counts as absent. If this is still open, the Machine is requeued.
func (s *instanceStep) countsAsAbsent(ctx context.Context, inputs resolve.Resolved) bool {
	if left := s.showsWithin(); left > 0 {
		s.undecided = true
		s.states.update(s.machine, func(m *machineState) { m.instance.checked = false })
		s.requeueIn(left)
		return false
	}
	recheck := recheckAfter(s.Cloud.CreateSettle())
	first := s.states.get(s.machine).instance.missingSince
	if first.IsZero() {
		first = s.Clock.Now() // The interval begins with this answer, not with the start of the pass.
		s.states.update(s.machine, func(m *machineState) { m.instance.missingSince, m.instance.checked = first, false })
	} else if s.now.Sub(first) >= recheck {
		return s.absenceConfirmed(ctx, inputs)
	}
	s.undecided = true
	s.requeueIn(first.Add(recheck).Sub(s.now))
	return false
}

func (s *instanceStep) noteShown() {
	if !s.states.get(s.machine).instance.missingSince.IsZero() {
		s.states.update(s.machine, func(m *machineState) {
			m.instance.missingSince, m.instance.deniedAt = time.Time{}, time.Time{}
		})
	}
}

// followAbsent handles a Machine whose instance is not shown by the cloud. If the status already contains the instance
// (known is true), the status stays unchanged until the instance counts as absent.
func (s *instanceStep) followAbsent(ctx context.Context, inputs resolve.Resolved, known bool) progress {
	if s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return onMachine // The owner replaces the Machine.
	}
	if s.countsAsAbsent(ctx, inputs) {
		s.recordVanished()
		return onMachine
	}
	if !known {
		s.launch.reportLaunching("Waiting for the provider to show the instance.")
	}
	return s.after(s.pollInterval()).unless(known)
}

// confirmGone checks whether the instance is absent after Delete returned Gone. Many drivers look up the instance
// before they delete it. Such a driver also returns Gone if the cloud does not show the instance yet. Without this
// check, the Machine would be deleted and the instance would remain.
func (s *teardownStep) confirmGone(ctx context.Context, inputs resolve.Resolved,
	result provider.DeleteResult) progress {
	switch {
	case s.deletionAccepted():
		return next
	case result.Found:
		return s.recordGone()
	}
	poll := pollInterval(s.now.Sub(s.nothingToDeleteSince()))
	if left := s.instance.showsWithin(); left > 0 {
		s.deleting(v1beta1.ReasonCreateSettling,
			"The provider does not show the instance. Waiting for the settle time to pass, "+
				"because a new instance may appear late.")
		return s.after(min(left, poll))
	}
	instance, err := s.instance.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if err := s.confirmNotFound(ctx, inputs); err != nil {
			s.failing = true
			s.deleting(v1beta1.ReasonProviderUnavailable, messageOf(err))
			return s.after(askWitnessesAgain)
		}
		return s.recordGone()
	case err != nil:
		return s.deleteFailed(err, inputs)
	case instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil:
		return s.recordGone() // The provider ID now belongs to another instance.
	}
	s.deleting(v1beta1.ReasonInstanceTerminating, "The provider reported that the instance is gone, but still shows it. Deleting it again.")
	return s.after(poll)
}

func (s *teardownStep) recordGone() progress {
	s.states.update(s.machine, func(m *machineState) { m.teardown.accepted = true })
	s.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The instance is gone.", "")
	return next
}

// deletionAccepted reports whether the deletion needs no further check. Either the cloud has accepted the deletion of
// the instance, or a check has confirmed that the instance is gone.
func (s *teardownStep) deletionAccepted() bool {
	if s.states.get(s.machine).teardown.accepted {
		return true
	}
	last := s.machine.Status.LastOperation
	return last != nil && last.Type == v1beta1.OperationDelete && last.State == v1beta1.OperationProcessing &&
		last.Code == ""
}

// nothingToDeleteSince returns the time at which Delete first reported, during this deletion, that there is no
// instance.
func (s *teardownStep) nothingToDeleteSince() time.Time {
	since := s.states.get(s.machine).teardown.nothingFoundSince
	if since.IsZero() {
		since = s.now
		s.states.update(s.machine, func(m *machineState) { m.teardown.nothingFoundSince = since })
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
func (s *instanceStep) checkSuspect(ctx context.Context) (gone bool, err error) {
	suspectID := s.states.get(s.machine).instance.suspectID
	if suspectID == "" {
		return false, nil
	}
	decided := func() { s.states.update(s.machine, func(known *machineState) { known.instance.suspectID = "" }) }
	if suspectID != s.machine.Spec.ProviderID {
		decided()
		return false, nil
	}
	err = s.check(ctx, true)
	gone = s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished
	if gone || err != nil || s.states.get(s.machine).instance.getFailures == 0 && !s.undecided {
		decided()
	}
	return gone, err
}
