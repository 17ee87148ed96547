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

func (p *pass) withdrawRefused(ctx context.Context) error {
	if !refusedLaunch(p.machine) {
		return nil
	}
	launch := *p.machine.Status.Launch
	launch.Refused = false
	p.machine.Status.Launch = &launch
	return p.writeStatus(ctx)
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

// neverCreated reports whether each Create for a Machine without an instance was rejected. An outdated Machine does no
// harm, because the patch that removes the finalizer then fails with a conflict.
func (r *removal) neverCreated() bool {
	m := r.machine
	return refusedLaunch(m) && m.Spec.ProviderID == "" && m.Status.Instance == nil &&
		r.states.get(m).launch.ambiguousAt.IsZero()
}
