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

// A cloud may answer NotFound for an instance that exists. Clouds with eventual consistency do so for seconds after
// they accepted it, and a single read may reach a replica that is behind. A machine that counts as vanished is
// replaced, and its instance deleted, so this file is the only place that concludes from NotFound, or from Gone, that
// an instance is absent:
//
//   - not before the driver's settling time has passed since the instance was created or adopted,
//   - only if two reads in a row say NotFound. An instance that is shown, a failed read and a Ready Node start the
//     count again,
//   - only if this process knows that it has looked in the right place (absence_scope.go), and
//   - only if the cloud does not deny others that run (absence_witness.go).

// maxRecheck bounds the time between the two reads.
const maxRecheck = 15 * time.Second

// recheckAfter is how far apart two reads have to be before the second one tells something new. The settling time
// says how slow the reads of this cloud are; a part of it is enough for a replica to catch up, and a preempted
// instance is replaced within seconds.
func recheckAfter(settle time.Duration) time.Duration { return min(settle/4, maxRecheck) }

// longLaunched is how long ago an instance must have been launched to be shown by the cloud whoever created it. It is
// more than any call lasts, and than the clocks of two processes differ.
const longLaunched = 10 * time.Minute

// showsWithin returns for how long the cloud may still not show the instance that the Machine has recorded. It is not
// positive when it must be shown. This process knows when its own Create or Adopt ended; those of others ended before
// it began to lead.
func (s *instanceStep) showsWithin() time.Duration {
	settle := s.Cloud.CreateSettle()
	since := s.states.createdAt(s.machine)
	if since.IsZero() {
		launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
		switch {
		case launched == nil:
		case launched.Reason == v1beta1.ReasonInstanceVanished:
			return 0 // It was found absent before.
		case launched.Status == metav1.ConditionTrue && s.now.Sub(launched.LastTransitionTime.Time) >= longLaunched+settle:
			return 0
		}
		since = s.leading
	}
	return since.Add(settle).Sub(s.now)
}

// absent takes note that the cloud answered NotFound to a read by provider ID, and reports whether the instance
// counts as absent. If that cannot be decided yet, the Machine is reconciled again when it can.
func (s *instanceStep) absent(ctx context.Context, inputs resolve.Resolved) bool {
	if left := s.showsWithin(); left > 0 {
		s.undecided = true
		s.states.update(s.machine, func(m *machineState) { m.instance.checked = false })
		s.requeueIn(left)
		return false
	}
	recheck := recheckAfter(s.Cloud.CreateSettle())
	first := s.states.get(s.machine).instance.missingSince
	if first.IsZero() {
		if misplaced, _, err := s.misplaced(ctx, inputs); err == nil && misplaced {
			s.lookAgain()
			return false
		}
		first = s.Clock.Now() // The second read must be that much later than the answer to this one.
		s.states.update(s.machine, func(m *machineState) { m.instance.missingSince, m.instance.checked = first, false })
	} else if s.now.Sub(first) >= recheck {
		return s.confirmed(ctx, inputs)
	}
	s.undecided = true
	s.requeueIn(first.Add(recheck).Sub(s.now))
	return false
}

// lookAgain has the instance looked for soon, in the scope that was just corrected.
func (s *instanceStep) lookAgain() {
	s.undecided = true
	s.shown()
	s.requeueIn(s.pollInterval())
}

// shown takes note of something that contradicts the last NotFound.
func (s *instanceStep) shown() {
	if !s.states.get(s.machine).instance.missingSince.IsZero() {
		s.states.update(s.machine, func(m *machineState) {
			m.instance.missingSince, m.instance.deniedAt = time.Time{}, time.Time{}
		})
	}
}

// followAbsent continues with an instance that the cloud does not show while it is followed. Until it counts as
// absent, a Machine that is described (known) stays as it is, and its Node may come.
func (s *instanceStep) followAbsent(ctx context.Context, inputs resolve.Resolved, known bool) progress {
	if s.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return onMachine // Its owner replaces it.
	}
	if s.absent(ctx, inputs) {
		s.vanished()
		return onMachine
	}
	if !known {
		s.launch.launching("Waiting for the provider to show the instance.")
	}
	return s.after(s.pollInterval()).unless(known)
}

// confirmGone reports whether an instance that Delete called gone is absent. A driver that looks the instance up
// before it deletes it says Gone as well when its cloud does not show the instance yet, and the Machine would leave
// it behind. If the removal was accepted before, nothing is left to confirm.
func (s *teardownStep) confirmGone(ctx context.Context, inputs resolve.Resolved,
	result provider.DeleteResult) progress {
	if s.states.get(s.machine).teardown.accepted && s.scopeKnown() {
		return next
	}
	if result.Found {
		return s.goneForGood()
	}
	poll := pollInterval(s.now.Sub(s.nothingToDeleteSince()))
	switch misplaced, again, err := s.misplaced(ctx, inputs); {
	case err != nil:
		return s.deleteFailed(err, inputs)
	case misplaced:
		s.deleting(v1beta1.ReasonInstanceTerminating, "The instance is in another place than the one recorded.")
		return s.after(poll)
	case again > 0:
		if !s.deletionAccepted() { // Otherwise what the process before has said still holds.
			s.deleting(v1beta1.ReasonInstanceTerminating,
				"The provider does not find the instance; looking for it once more by its tags.")
		}
		return s.after(again)
	case s.deletionAccepted():
		return next
	}
	if left := s.instance.showsWithin(); left > 0 {
		s.deleting(v1beta1.ReasonCreateSettling,
			"The provider does not show the instance; waiting until it would have shown.")
		return s.after(min(left, poll))
	}
	instance, err := s.instance.get(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		if err := s.confirmDenial(ctx, inputs); err != nil {
			s.failing = true
			s.deleting(v1beta1.ReasonProviderUnavailable, messageOf(err))
			return s.after(askWitnessesAgain)
		}
		return s.goneForGood()
	case err != nil:
		return s.deleteFailed(err, inputs)
	case instance.OwnedBy(s.ClusterID, identity(s.machine)) != nil:
		return s.goneForGood() // The provider ID is another's by now.
	}
	s.deleting(v1beta1.ReasonInstanceTerminating, "The provider reports that the instance is gone, and still shows it.")
	return s.after(poll)
}

// goneForGood keeps that nothing has to be confirmed again where what follows takes longer. It is written only with
// what that waits for.
func (s *teardownStep) goneForGood() progress {
	s.states.update(s.machine, func(m *machineState) { m.teardown.accepted = true })
	s.foundIn(s.scope()) // It is nowhere else.
	s.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The instance is gone.", "")
	return next
}

// deletionAccepted reports whether the cloud has accepted the removal of the instance, from this process or from one
// before it, or it was confirmed to be gone.
func (s *teardownStep) deletionAccepted() bool {
	if s.states.get(s.machine).teardown.accepted {
		return true
	}
	last := s.machine.Status.LastOperation
	return last != nil && last.Type == v1beta1.OperationDelete && last.State == v1beta1.OperationProcessing &&
		last.Code == ""
}

// nothingToDeleteSince is when Delete first reported, in this deletion, that there is no instance.
func (s *teardownStep) nothingToDeleteSince() time.Time {
	since := s.states.get(s.machine).teardown.nothingFoundSince
	if since.IsZero() {
		since = s.now
		s.states.update(s.machine, func(m *machineState) { m.teardown.nothingFoundSince = since })
	}
	return since
}

// CheckInstance has the Machine ask the provider whether its recorded instance still exists. It may be called at any
// time, and returns at once. The Machine is not changed.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.Enqueue(client.ObjectKeyFromObject(m))
}

// checkSuspect asks the provider for an instance that may be missing until it answers, and reports whether it is gone.
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
