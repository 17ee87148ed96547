package main

// withoutReadBeforeDiscard removes an instance that failed for lack of capacity without asking whether it is a node.
var withoutReadBeforeDiscard = &mutant{file: "internal/machine/gave_up.go", from: "		case s.node != nil:\n			return s.runsAfterAll(), nil",
	to: "		case s.node != nil && s.teardown.forced():\n			return s.runsAfterAll(), nil"}

// withoutReadBeforeParts removes parts whether their machine has an instance or not.
var withoutReadBeforeParts = &mutant{file: "internal/safety/orphans/leftovers.go", from: "	case err == nil:\n		c.log(ctx)",
	to: "	case err == nil && machine.UID == \"\":\n		c.log(ctx)", without: &mutant{
		file: "internal/safety/orphans/leftovers.go", from: "	case !provider.IsNotFound(err):",
		to: "	case err != nil && !provider.IsNotFound(err):"}}

// cloudMutants are bugs that show in a cloud with other semantics than the kindest.
func cloudMutants() []mutant {
	return []mutant{
		{
			name: "settling-not-waited-for", file: "internal/machine/absence.go",
			from:  "	if left := s.showsWithin(); left > 0 {\n		s.undecided",
			to:    "	if left := s.showsWithin(); left > time.Hour {\n		s.undecided",
			cloud: "reads-late", finds: "vanished",
		},
		{
			name: "one-read-is-enough", file: "internal/machine/absence.go",
			from:  "	if first.IsZero() {\n		first = s.Clock.Now()",
			to:    "	if first.IsZero() && recheck < 0 {\n		first = s.Clock.Now()",
			cloud: "reads-flicker", finds: "vanished",
		},
		{
			name: "former-leaders-creation-not-counted", file: "internal/machine/absence.go",
			from: "		since = s.leading", to: "		since = time.Time{}",
			cloud: "reads-late", finds: "vanished|I1",
		},
		{
			name: "own-creation-not-counted", file: "internal/machine/state.go",
			from: "	m.created[machine.UID] = at\n", to: "	m.created[machine.UID] = at.Add(-settle)\n",
			cloud: "reads-late", finds: "vanished|I1",
		},
		{
			name: "unknown-taken-for-gone", file: "internal/machine/absence.go",
			from: "	case s.deletionAccepted():", to: "	case s.deletionAccepted() || result.Gone:",
			cloud: "reads-late", finds: "I1",
		},
		{
			name: "settling-not-waited-for-in-a-deletion", file: "internal/machine/absence.go",
			from:  "	if left := s.instance.showsWithin(); left > 0 {\n		s.deleting",
			to:    "	if left := s.instance.showsWithin(); left > time.Hour {\n		s.deleting",
			cloud: "reads-late", finds: "I1",
		},
		{
			name: "providers-clock-trusted", file: "internal/safety/orphans/plan.go",
			from: "reported >= r.MinAge+clockDifference || reported >= r.MinAge && known", to: "reported >= r.MinAge",
			cloud: "clock-behind", finds: "orphans: ",
		},
		{
			name: "expired-credentials-taken-for-bad-input", file: "internal/machine/retry_policy.go",
			from:  "	case provider.ResourceExhausted:\n		return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}\n	case provider.Unauthenticated, provider.PermissionDenied:",
			to:    "	case provider.ResourceExhausted:\n		return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}\n	case provider.Unauthenticated:\n		return retryPolicy{reason: v1beta1.ReasonInvalidConfiguration}\n	case provider.PermissionDenied:",
			cloud: "credentials-expire", finds: "settled, but|after the last disturbance",
		},
		{
			name: "quota-taken-for-bad-input", file: "internal/machine/retry_policy.go",
			from:  "		return retryPolicy{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}",
			to:    "		return retryPolicy{reason: v1beta1.ReasonInsufficientResources}",
			cloud: "quota-frees-late", finds: "settled, but|after the last disturbance",
		},
		{
			name: "expired-credentials-taken-for-gone", file: "internal/machine/teardown.go",
			from:  "		s.deleteFailed(err, inputs)\n		return wait, nil\n	}\n	s.answered()",
			to:    "		if provider.CodeOf(err) == provider.Unauthenticated {\n			return next, nil\n		}\n		s.deleteFailed(err, inputs)\n		return wait, nil\n	}\n	s.answered()",
			cloud: "credentials-expire", finds: "I1|order",
		},
		{
			name: "late-lack-of-capacity-not-waited-for", file: "internal/machine/gave_up.go",
			from:  "	s.states.update(m, func(m *machineState) { m.pace.notBefore = due })",
			to:    "	s.states.update(m, func(m *machineState) { m.pace.notBefore = s.now })",
			cloud: "no-host", finds: "capacity",
		},
		{
			name: "late-lack-of-capacity-fails-machine", file: "internal/machine/gave_up.go",
			from:  "in.StateCode != provider.ResourceExhausted ||",
			to:    "in.StateCode != provider.ResourceExhausted || m.LaunchAttempt() > 1 ||",
			cloud: "no-host", finds: "capacity",
		},
		{
			name: "failed-instance-taken-for-the-next", file: "internal/machine/gave_up.go",
			from:  "	launch.Step, launch.OldProviderID = v1beta1.LaunchStepRetrying, m.Spec.ProviderID",
			to:    "	launch.Step = v1beta1.LaunchStepRetrying",
			cloud: "no-host+lists-return", finds: ".",
		},
		{
			name: "failed-state-kills-node", file: "internal/machine/registration.go",
			from:  "	case node == nil && s.instance.failed != nil:",
			to:    "	case s.machine.Status.NodeRef == nil && s.instance.failed != nil:",
			cloud: "reports-failed", finds: ".",
		},
		{
			name: "failed-state-believed-from-stale-view", file: "internal/machine/gave_up.go",
			from: "err != nil || there {",
			to:   "err != nil || there && s.teardown.forced() {", without: withoutReadBeforeDiscard,
			cloud: "reports-failed", finds: ".",
		},
		{
			name: "parts-of-an-instance-removed", file: "internal/safety/orphans/plan.go",
			from:  "(cached || listed[in.MachineUID]):\n		return Owned",
			to:    "(cached || listed[in.MachineUID]):\n		return Delete",
			cloud: "parts-unattached", finds: "orphans", without: withoutReadBeforeParts,
		},
	}
}
