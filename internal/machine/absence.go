package machine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// A cloud may answer NotFound for an instance that exists. Clouds with eventual consistency do so for seconds after
// they accepted it, and a single read may reach a replica that is behind. A machine that counts as vanished is
// replaced, and its instance deleted, so this file is the only place that concludes from NotFound, or from Gone, that
// an instance is absent:
//
//   - not before the driver's settling time has passed since the instance was created or adopted, and
//   - only if two reads in a row say NotFound. An instance that is shown, a failed read and a Ready Node start the
//     count again.

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
func (p *pass) showsWithin() time.Duration {
	settle := p.Cloud.CreateSettle()
	since := p.states.createdAt(p.machine)
	if since.IsZero() {
		launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
		switch {
		case launched == nil:
		case launched.Reason == v1beta1.ReasonInstanceVanished:
			return 0 // It was found absent before.
		case launched.Status == metav1.ConditionTrue && p.now.Sub(launched.LastTransitionTime.Time) >= longLaunched+settle:
			return 0
		}
		since = p.leading
	}
	return since.Add(settle).Sub(p.now)
}

// absent takes note that the cloud answered NotFound to a read by provider ID, and reports whether the instance
// counts as absent. If that cannot be decided yet, the Machine is reconciled again when it can.
func (p *pass) absent() bool {
	if left := p.showsWithin(); left > 0 {
		p.undecided = true
		p.states.update(p.machine, func(m *machineState) { m.instance.checked = false })
		p.requeueIn(left)
		return false
	}
	recheck := recheckAfter(p.Cloud.CreateSettle())
	first := p.states.get(p.machine).instance.missingSince
	if first.IsZero() {
		first = p.Clock.Now() // The second read must be that much later than the answer to this one.
		p.states.update(p.machine, func(m *machineState) { m.instance.missingSince, m.instance.checked = first, false })
	} else if p.now.Sub(first) >= recheck {
		return true
	}
	p.undecided = true
	p.requeueIn(first.Add(recheck).Sub(p.now))
	return false
}

// shown takes note of something that contradicts the last NotFound.
func (p *pass) shown() {
	if !p.states.get(p.machine).instance.missingSince.IsZero() {
		p.states.update(p.machine, func(m *machineState) { m.instance.missingSince = time.Time{} })
	}
}

// followAbsent continues with an instance that the cloud does not show while it is followed. Until it counts as
// absent, a Machine that is described (known) stays as it is, and its Node may come.
func (p *pass) followAbsent(known bool) progress {
	if p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished {
		return wait
	}
	if p.absent() {
		p.vanished()
		return wait
	}
	if !known {
		p.launching("Waiting for the provider to show the instance.")
	}
	p.requeueIn(p.pollInterval())
	return progress(known)
}

// confirmGone reports whether an instance that Delete called gone is absent. A driver that looks the instance up
// before it deletes it says Gone as well when its cloud does not show the instance yet, and the Machine would leave
// it behind. If the removal was accepted before, nothing is left to confirm.
func (p *pass) confirmGone(ctx context.Context, inputs resolve.Resolved, result provider.DeleteResult) progress {
	if p.deletionAccepted() {
		return next
	}
	if result.Found {
		return p.goneForGood()
	}
	poll := pollInterval(p.now.Sub(p.nothingToDeleteSince()))
	if left := p.showsWithin(); left > 0 {
		p.deleting(v1beta1.ReasonCreateSettling,
			"The provider does not show the instance; waiting until it would have shown.")
		p.requeueIn(min(left, poll))
		return wait
	}
	instance, err := p.getInstance(ctx, inputs)
	switch {
	case provider.IsNotFound(err):
		return p.goneForGood()
	case err != nil:
		p.deleteFailed(err)
		return wait
	case instance.OwnedBy(p.ClusterID, identity(p.machine)) != nil:
		return p.goneForGood() // The provider ID is another's by now.
	}
	p.deleting(v1beta1.ReasonInstanceTerminating, "The provider reports that the instance is gone, and still shows it.")
	p.requeueIn(poll)
	return wait
}

// goneForGood keeps that nothing has to be confirmed again where what follows takes longer. It is written only with
// what that waits for.
func (p *pass) goneForGood() progress {
	p.states.update(p.machine, func(m *machineState) { m.teardown.accepted = true })
	p.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, "The instance is gone.", "")
	return next
}

// deletionAccepted reports whether the cloud has accepted the removal of the instance, from this process or from one
// before it, or it was confirmed to be gone.
func (p *pass) deletionAccepted() bool {
	if p.states.get(p.machine).teardown.accepted {
		return true
	}
	last := p.machine.Status.LastOperation
	return last != nil && last.Type == v1beta1.OperationDelete && last.State == v1beta1.OperationProcessing &&
		last.Code == ""
}

// nothingToDeleteSince is when Delete first reported, in this deletion, that there is no instance.
func (p *pass) nothingToDeleteSince() time.Time {
	since := p.states.get(p.machine).teardown.nothingFoundSince
	if since.IsZero() {
		since = p.now
		p.states.update(p.machine, func(m *machineState) { m.teardown.nothingFoundSince = since })
	}
	return since
}

// replaced reports whether this is the instance that was replaced last, which the cloud still shows. Later than the
// settling time it cannot be: then a driver has given its ID to the new one.
func (p *pass) replaced(instance *provider.Instance) bool {
	launch := p.machine.Status.Launch
	return launch != nil && launch.OldProviderID != "" && launch.OldProviderID == instance.ProviderID &&
		p.now.Sub(p.began()) <= p.Cloud.CreateSettle()
}

// stateOf is the state of an instance after a read. A read that is behind shows an instance that ran as one that has
// not booted; following it again would gain nothing.
func stateOf(before *v1beta1.InstanceStatus, read *provider.Instance) v1beta1.InstanceState {
	if before != nil && before.State == v1beta1.InstanceRunning && read.State == provider.StatePending {
		return before.State
	}
	return v1beta1.InstanceState(read.State)
}

// CheckInstance has the Machine ask the provider whether its recorded instance still exists. It may be called at any
// time, and returns at once. The Machine is not changed.
func (r *Reconciler) CheckInstance(m *v1beta1.Machine) {
	r.states.update(m, func(known *machineState) { known.instance.suspectID = m.Spec.ProviderID })
	r.trigger.Enqueue(client.ObjectKeyFromObject(m))
}

// checkSuspect asks the provider for an instance that may be missing until it answers, and reports whether it is gone.
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
	err = p.checkInstance(ctx, true)
	gone = p.machine.Status.FailureReason == v1beta1.FailureInstanceVanished
	if gone || err != nil || p.states.get(p.machine).instance.getFailures == 0 && !p.undecided {
		decided()
	}
	return gone, err
}
