package machine

import (
	"context"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// If every creation of a fleet was refused, for example because of wrong credentials, its Machines have no instances
// and must be deletable without those credentials. So the status records that all creations were refused. The record is
// durably removed before the next Create is sent, so that a process that is killed during a Create leaves no record.

// refusedLaunch reports whether the status records that every Create was refused.
func refusedLaunch(m *v1beta1.Machine) bool { return m.Status.Launch != nil && m.Status.Launch.Refused }

// refuses reports whether an error of Create means that neither this call nor an earlier one took effect. AlreadyExists
// means that an earlier call took effect.
func refuses(err error) bool {
	code := provider.CodeOf(err)
	return err != nil && !code.Ambiguous() && code != provider.AlreadyExists
}

// withdrawRefused removes the record before another Create is sent.
func (s *launchStep) withdrawRefused(ctx context.Context) error {
	if !refusedLaunch(s.machine) {
		return nil
	}
	launch := *s.machine.Status.Launch
	launch.Refused = false
	s.machine.Status.Launch = &launch
	return s.writeStatus(ctx)
}

// recordRefused records that every Create was refused.
func (s *launchStep) recordRefused(refused bool) {
	if !refused {
		return
	}
	launch := v1beta1.LaunchStatus{Attempt: s.machine.LaunchAttempt()}
	if s.machine.Status.Launch != nil {
		launch = *s.machine.Status.Launch
	}
	launch.Refused = true
	s.machine.Status.Launch = &launch
}

// neverCreated reports whether every Create for a Machine without an instance was refused. The later removal of the
// finalizer fails if the Machine has changed since it was read.
func (s *teardownStep) neverCreated() bool {
	m := s.machine
	return refusedLaunch(m) && m.Spec.ProviderID == "" && m.Status.Instance == nil &&
		s.states.get(m).launch.ambiguousAt.IsZero()
}
