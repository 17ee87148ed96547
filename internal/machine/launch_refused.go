package machine

import (
	"context"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// If all creations of a fleet were rejected, for example because of wrong credentials, its Machines have no
// instances. An administrator must be able to delete these Machines without these credentials. The status therefore
// records that all creations were rejected. This record is removed before the next Create is sent, in case the
// process is killed during that Create.

func refusedLaunch(m *v1beta1.Machine) bool { return m.Status.Launch != nil && m.Status.Launch.Refused }

// refuses reports whether an error of Create proves that neither this call nor an earlier one has created an instance.
// AlreadyExists means that an earlier call has created an instance.
func refuses(err error) bool {
	code := provider.CodeOf(err)
	return err != nil && !code.Ambiguous() && code != provider.AlreadyExists
}

// beginAttempt makes it durable that an instance may exist from now on. A Machine that waited for capacity leaves this
// step, so that the MachineSet no longer changes its class. The write fails with a conflict if the Machine has changed.
func (p *pass) beginAttempt(ctx context.Context) error {
	if !refusedLaunch(p.machine) && !p.machine.IsAwaitingCapacity() {
		return nil
	}
	if p.machine.IsAwaitingCapacity() {
		p.reportAttempt()
	}
	launch := *p.machine.Status.Launch
	launch.Refused, launch.Step = false, v1beta1.LaunchStepNone
	p.machine.Status.Launch = &launch
	version := p.original.ResourceVersion
	if err := p.writeStatus(ctx); err != nil {
		return err
	}
	if p.original.ResourceVersion == version {
		return errStale // The Machine is gone.
	}
	return nil
}

func (p *pass) recordRefused(refused bool) {
	if !refused {
		return
	}
	launch := v1beta1.LaunchStatus{Attempt: p.machine.LaunchAttempt()}
	if p.machine.Status.Launch != nil {
		launch = *p.machine.Status.Launch
	}
	launch.Refused = true
	p.machine.Status.Launch = &launch
}

// neverCreated reports whether no instance can exist, because each Create for a Machine without an instance was
// rejected, or because the last attempt has ended. An outdated Machine does no harm, because the patch that removes the
// finalizer then fails with a conflict.
func (r *removal) neverCreated() bool {
	m := r.machine
	return (refusedLaunch(m) || m.IsAwaitingCapacity()) && m.Spec.ProviderID == "" && m.Status.Instance == nil &&
		r.states.get(m).launch.ambiguousAt.IsZero()
}
