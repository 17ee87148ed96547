package main

// cloudMutants are bugs that show in a cloud with other semantics than the kindest.
func cloudMutants() []mutant {
	return []mutant{
		{
			name: "settling-not-waited-for", file: "internal/machine/absence.go",
			from: "	if left := p.instanceUnsettled(now); left > 0 {", to: "	if left := p.instanceUnsettled(now); left > time.Hour {",
			cloud: "reads-late", finds: "made|the end|I1",
		},
		{
			name: "one-read-is-enough", file: "internal/machine/absence.go",
			from: "	if left := missing.since.Add(absenceSpacing).Sub(now); left > 0 {", to: "	if left := missing.since.Sub(now); left > 0 {",
			cloud: "reads-flicker", finds: "",
		},
		{
			name: "read-that-finds-forgotten", file: "internal/machine/absence.go",
			from: "	if p.memory.of(p.machine).missing != (absence{}) {", to: "	if p.memory.of(p.machine).missing == (absence{}) {",
			cloud: "reads-flicker", finds: "",
		},
		{
			name: "former-leaders-creation-not-counted", file: "internal/machine/absence.go",
			from: "	if p.leading.After(made) && !p.leading.After(now) {", to: "	if p.leading.After(now) {",
			cloud: "reads-late", finds: "",
		},
		{
			name: "creation-with-lost-patch-not-counted", file: "internal/machine/launch.go",
			from:  "	p.memory.update(p.machine, func(m *recollection) { m.madeAt = p.Clock.Now() })\n	if err := p.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = instance.ProviderID }); err != nil {\n		return wait, err\n	}\n",
			to:    "	if err := p.patchMachine(ctx, func(m *v1beta1.Machine) { m.Spec.ProviderID = instance.ProviderID }); err != nil {\n		return wait, err\n	}\n	p.memory.update(p.machine, func(m *recollection) { m.madeAt = p.Clock.Now() })\n",
			cloud: "reads-late", finds: "",
		},
		{
			name: "unknown-taken-for-gone", file: "internal/machine/deletion.go",
			from: `	case req.ProviderID != "" && p.removed(result):`, to: `	case req.ProviderID != "":`,
			cloud: "reads-late", finds: "I1",
		},
		{
			name: "missing-in-a-list-taken-for-gone", file: "internal/machine/doubt.go",
			from: "	err = p.checkInstance(ctx, true)", to: "	p.vanished()",
			cloud: "lists-short", finds: "",
		},
		{
			name: "expired-credentials-taken-for-bad-input", file: "internal/machine/consequence.go",
			from:  "	case provider.ResourceExhausted:\n		return consequence{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}\n	case provider.Unauthenticated, provider.PermissionDenied:",
			to:    "	case provider.ResourceExhausted:\n		return consequence{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}\n	case provider.Unauthenticated:\n		return consequence{reason: v1beta1.ReasonInvalidConfiguration}\n	case provider.PermissionDenied:",
			cloud: "credentials-expire", finds: "at rest, but|after the last disturbance",
		},
		{
			name: "quota-taken-for-bad-input", file: "internal/machine/consequence.go",
			from: "		return consequence{v1beta1.ReasonInsufficientResources, time.Minute, 10 * time.Minute}", to: "		return consequence{reason: v1beta1.ReasonInsufficientResources}",
			cloud: "quota-frees-late", finds: "at rest, but|after the last disturbance",
		},
		{
			name: "expired-credentials-taken-for-gone", file: "internal/machine/deletion.go",
			from: "		p.deleteFailed(err)\n		return wait, nil\n	case !result.Gone:", to: "		if provider.CodeOf(err) == provider.Unauthenticated {\n			return next, nil\n		}\n		p.deleteFailed(err)\n		return wait, nil\n	case !result.Gone:",
			cloud: "credentials-expire", finds: "I1|order",
		},
		{
			name: "throttled-with-no-hint-not-tried-again", file: "internal/machine/consequence.go",
			from: "	return max(d, retryAfter)", to: "	if retryAfter == 0 && c.reason == v1beta1.ReasonProviderUnavailable {\n		return 24 * time.Hour\n	}\n	return max(d, retryAfter)",
			cloud: "throttled", finds: "",
		},
	}
}
