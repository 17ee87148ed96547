package main

// drainMutants are planted bugs that concern pods, their volumes, and what holds a machine or what it was made from.
func drainMutants() []mutant {
	return []mutant{
		{
			name: "budget-ignored", file: "internal/machine/drain/plan.go",
			from: "		forced:   p.deadline.passed(grace(pod), p.Now),", to: "		forced:   true,",
			scenario: "drain-never-allowed", finds: "I7: .* before its time|I7: .* before a drain began",
		},
		{
			name: "grace-cut", file: "internal/machine/drain/deadline.go",
			from: "	left := max(min(grace, d.end.Sub(now)), minGrace)", to: "	left := minGrace",
			scenario: "drain-never-allowed", finds: "I7: .* gives pod",
		},
		{
			name: "no-grace", file: "internal/machine/drain/evict.go",
			from:     "client.GracePeriodSeconds(s.Grace), client.Preconditions{UID: &s.UID})",
			to:       "client.GracePeriodSeconds(0), client.Preconditions{UID: &s.UID})",
			scenario: "drain-never-allowed", finds: "I7: .* gives pod|without any grace",
		},
		{
			name: "drain-skipped", file: "internal/machine/teardown.go",
			from:     "s.interruption.observeInDeletion, s.drain.run, s.awaitPreTerminateHooks,",
			to:       "s.interruption.observeInDeletion, s.awaitPreTerminateHooks,",
			scenario: "drain-beside-others", finds: "I7: instance .* is disturbed",
		},
		{
			name: "drained-too-early", file: "internal/machine/drain/plan.go",
			from:     "	return s.Action != Skip && s.Action != Ignore\n",
			to:       "	return s.Action != Skip && s.Action != Ignore && s.Action != Await\n",
			scenario: "drain-one-at-a-time", finds: "I7: instance .* is disturbed",
		},
		{
			name: "daemons-evicted", file: "internal/machine/drain/plan.go",
			from: "	case owner != nil && !p.Orphaned[owner.UID]:", to: "	case owner != nil && p.Orphaned[owner.UID]:",
			scenario: "drain-beside-others", finds: "bound to its node",
		},
		{
			name: "deadline-ignored", file: "internal/machine/drain.go",
			from: "Start: start, Deadline: s.deadline(start),", to: "Start: start,",
			scenario: "drain-never-allowed", finds: "settled, but|after the last disturbance|not settled",
		},
		{
			name: "volumes-not-awaited", file: "internal/machine/drain/volumes.go",
			from: "	d.Done = len(d.Waiting) == 0 || d.TimedOut", to: "	d.Done = true",
			scenario: "drain-same-names", finds: "volumes: instance",
		},
		{
			name: "volume-timeout-ignored", file: "internal/machine/drain/volumes.go",
			from: "	d.TimedOut = len(d.Waiting) > 0 && left <= 0", to: "	d.TimedOut = false",
			scenario: "drain-stuck-volume", finds: "settled, but|after the last disturbance|not settled",
		},
		{
			name: "node-of-a-dead-instance-dropped", quick: true, file: "internal/machine/teardown.go",
			from:     "	if proceed, err := s.detachByForce(ctx); err != nil || !bool(proceed) {",
			to:       "	if proceed, err := next, error(nil); err != nil || !bool(proceed) {",
			scenario: "drain-silent-node", finds: "volumes: node",
		},
		{
			name: "updated-before-the-drain", file: "internal/machine/update.go",
			from: "Drained: drained || s.drainedForUpdate(),", to: "Drained: true,",
			scenario: "drain-for-update", finds: "I7: instance .* is disturbed",
		},
		{
			name: "evictions-go-on-after-the-update", file: "internal/machine/drain.go",
			from:     "	if s.Drainer != nil {\n		s.Drainer.Forget(client.ObjectKeyFromObject(s.machine))\n	}\n}\n\n// suspend",
			to:       "}\n\n// suspend",
			scenario: "drain-update-withdrawn", finds: "I7: ",
		},
		{
			name: "pre-drain-hook-ignored", file: "internal/machine/teardown.go",
			from: "s.findLost, s.awaitPreDrainHooks, s.findNode,", to: "s.findLost, s.findNode,",
			scenario: "hooks", finds: "hooks: ",
		},
		{
			name: "pre-terminate-hook-ignored", file: "internal/machine/teardown.go",
			from: "s.drain.run, s.awaitPreTerminateHooks, s.deleteInstance,", to: "s.drain.run, s.deleteInstance,",
			scenario: "hooks", finds: "hooks: instance",
		},
		{
			name: "pause-ignored-at-deletion", file: "internal/machine/teardown.go",
			from: "	if machinestate.Paused(s.machine) {\n", to: "	if machinestate.Paused(s.machine) && s.gone {\n",
			scenario: "paused-deletion", finds: "pause: ",
		},
		{
			name: "class-let-go-early", file: "internal/machineclass/deletion.go",
			from:     "return h.staying + h.leaving + h.undecided }",
			to:       "return max(h.staying+h.leaving+h.undecided-1, 0) }",
			scenario: "namespace-deleted-in-a-roll", finds: "I1: |settled, but|after the last disturbance",
		},
		{
			name: "inline-secret-not-held", file: "internal/machineclass/secrets.go",
			from:     "	for i := range machines.Items {\n		if m := &machines.Items[i]; slices.Contains",
			to:       "	for i := range machines.Items[:0] {\n		if m := &machines.Items[i]; slices.Contains",
			scenario: "inline-secret-deleted", finds: "settled, but|after the last disturbance",
		},
	}
}
