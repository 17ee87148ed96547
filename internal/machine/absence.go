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

// A cloud may answer NotFound for an instance that exists. A cloud with eventual consistency does so for seconds after
// it accepted the creation, and a single read may reach a replica that lags behind. A vanished machine is replaced and
// its instance deleted. Therefore this file is the only place that concludes from NotFound, or from Gone, that an
// instance is absent. All of these conditions must hold:
//
//   - The driver's settle time has passed since the instance was created or adopted.
//   - Two reads in a row returned NotFound. A read that finds the instance, a failed read and a Ready Node reset the
//     count.
//   - The cloud does not also answer NotFound for other instances that are known to run (absence_witness.go).

// maxRecheck limits the time between the two reads.
const maxRecheck = 15 * time.Second

// recheckAfter returns how far apart two reads must be for the second one to count. The settle time is a measure of how
// slow the reads of this cloud are. A quarter of it is enough for a replica to catch up, and still lets a preempted
// instance be replaced within seconds.
func recheckAfter(settle time.Duration) time.Duration { return min(settle/4, maxRecheck) }

// longLaunched is the age from which the cloud must show an instance, no matter which process created it. It is longer
// than any call takes, and longer than the clocks of two processes may differ.
const longLaunched = 10 * time.Minute

// showsWithin returns for how much longer the cloud may fail to show the recorded instance. A result of zero or less
// means that the cloud must show it. This process knows when its own Create or Adopt call ended. The calls of another
// process ended before this one began to lead.
func (s *instanceStep) showsWithin() time.Duration {
	settle := s.Cloud.CreateSettle()
	since := s.states.createdAt(s.machine)
	if since.IsZero() {
		launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
		switch {
		case launched == nil:
		case launched.Reason == v1beta1.ReasonInstanceVanished:
			return 0 // An earlier pass found it absent.
		case launched.Status == metav1.ConditionTrue && s.now.Sub(launched.LastTransitionTime.Time) >= longLaunched+settle:
			return 0
		}
		since = s.leading
	}
	return since.Add(settle).Sub(s.now)
}

// countsAsAbsent records that the cloud answered NotFound to a read by provider ID, and reports whether the instance
// counts as absent. If that cannot be decided yet, it requeues the Machine for when it can be decided.
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
		first = s.Clock.Now() // The second read must be recheck later than this answer, not than the start of the pass.
		s.states.update(s.machine, func(m *machineState) { m.instance.missingSince, m.instance.checked = first, false })
	} else if s.now.Sub(first) >= recheck {
		return s.absenceConfirmed(ctx, inputs)
	}
	s.undecided = true
	s.requeueIn(first.Add(recheck).Sub(s.now))
	return false
}

// noteShown resets the count of NotFound answers, because something contradicts the last answer.
func (s *instanceStep) noteShown() {
	if !s.states.get(s.machine).instance.missingSince.IsZero() {
		s.states.update(s.machine, func(m *machineState) {
			m.instance.missingSince, m.instance.deniedAt = time.Time{}, time.Time{}
		})
	}
}

// followAbsent continues with a Machine whose instance the cloud does not show. If the instance is recorded (known),
// the Machine's status stays unchanged until the instance counts as absent, and its Node may still register.
func (s *instanceStep) followAbsent(ctx context.Context, inputs resolve.Resolved, known bool) progress {
	if s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return onMachine // Its owner replaces it.
	}
	if s.countsAsAbsent(ctx, inputs) {
		s.vanished()
		return onMachine
	}
	if !known {
		s.launch.launching("Waiting for the provider to show the instance.")
	}
	return s.after(s.pollInterval()).unless(known)
}

// confirmGone checks that an instance for which Delete returned Gone is absent. A driver that looks the instance up
// before it deletes it also returns Gone when its cloud does not show the instance yet. Without this check, the Machine
// would leave that instance behind. If the cloud accepted an earlier deletion, there is nothing to confirm.
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
			"The provider does not show the instance. Waiting for the settle time to pass, because a new instance may show late.")
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

// recordGone records that the instance is gone, so that later passes of this deletion do not confirm it again. The
// record is written together with the next change of the status.
func (s *teardownStep) recordGone() progress {
	s.states.update(s.machine, func(m *machineState) { m.teardown.accepted = true })
	s.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The instance is gone.", "")
	return next
}

// deletionAccepted reports whether the cloud has accepted the deletion of the instance, from this process or an earlier
// one, or whether the instance was confirmed to be gone.
func (s *teardownStep) deletionAccepted() bool {
	if s.states.get(s.machine).teardown.accepted {
		return true
	}
	last := s.machine.Status.LastOperation
	return last != nil && last.Type == v1beta1.OperationDelete && last.State == v1beta1.OperationProcessing &&
		last.Code == ""
}

// nothingToDeleteSince returns when Delete first reported, during this deletion, that there is no instance.
func (s *teardownStep) nothingToDeleteSince() time.Time {
	since := s.states.get(s.machine).teardown.nothingFoundSince
	if since.IsZero() {
		since = s.now
		s.states.update(s.machine, func(m *machineState) { m.teardown.nothingFoundSince = since })
	}
	return since
}

// CheckInstance requests a check whether the Machine's recorded instance still exists in the cloud. It may be called at
// any time, returns at once, and does not change the Machine.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.Enqueue(client.ObjectKeyFromObject(m))
}

// checkSuspect checks an instance that CheckInstance was called for, until the provider gives an answer. It reports
// whether the instance is gone.
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
