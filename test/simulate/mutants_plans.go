package main

// planMutants are bugs that show where something goes wrong at one effect, or begins there.
func planMutants() []mutant {
	return []mutant{
		{
			name: "no-fence", file: "internal/cloud/cloud.go",
			from: "	if e == changes {", to: "	if e == changes && c == nil {",
			scenario: "scale-down", finds: "fence: ", planned: true,
		},
		{
			name: "throttled-taken-for-gone", file: "internal/machine/teardown.go",
			from:     "		s.deleteFailed(err)\n		return wait, nil",
			to:       "		if provider.CodeOf(err) == provider.Throttled {\n			return next, nil\n		}\n		s.deleteFailed(err)\n		return wait, nil",
			scenario: "delete", finds: "I1|order", planned: true,
		},
		{
			name: "forbidden-taken-for-done", file: "internal/machine/health.go",
			from:     "(known.launch.token || !errors.Is(err, bootstrap.ErrMayNotRead))",
			to:       "!(apierrors.IsForbidden(err) || errors.Is(err, bootstrap.ErrMayNotRead))",
			scenario: "create-with-token", finds: "tokens are left", planned: true,
		},
		{
			name: "conflict-taken-for-success", file: "internal/machine/controller.go",
			from:     "	if errors.Is(err, errStale) || apierrors.IsConflict(err) {",
			to:       "	if apierrors.IsConflict(err) {\n		return reconcile.Result{}, nil\n	}\n	if errors.Is(err, errStale) {",
			scenario: "create", finds: "settled, but|after the last disturbance", planned: true,
		},
		{
			name: "first-count-from-the-cache", file: "internal/machineset/state.go",
			from: "		m.sets[key] = r\n", to: "		r.cache.Listed(r.cache.Mark(), \"1\")\n		m.sets[key] = r\n",
			scenario: "scale-up", finds: "I3", planned: true,
		},
		{
			name: "user-data-reported", file: "internal/machine/instance.go",
			from: "Type:           instance.Type,", to: "Type:           string(inputs.UserData),",
			scenario: "create", finds: "I10", planned: true,
		},
		{
			name: "credentials-in-an-error", file: "internal/machine/teardown.go",
			from:     "		s.deleteFailed(err)\n		return wait, nil",
			to:       "		secret, _ := inputs.Credentials.Get(\"token\")\n		s.deleteFailed(fmt.Errorf(\"%w: %s\", err, secret.Reveal()))\n		return wait, nil",
			scenario: "delete", finds: "I10", planned: true,
		},
		{
			name: "attempt-not-raised", file: "internal/machine/update.go",
			from: "Attempt: m.NextLaunchAttempt(), Old", to: "Attempt: m.LaunchAttempt(), Old",
			scenario: "replace", finds: "attempt: ", planned: true,
		},
		{
			name: "one-bootstrap-token-for-all", quick: true, file: "internal/bootstrap/token.go",
			from:     "	for salt := range maxSalt {\n		id := a.tokenID(salt)\n		secret, err",
			to:       "	a.UID, a.Number = \"\", 0\n	for salt := range maxSalt {\n		id := a.tokenID(salt)\n		secret, err",
			scenario: "certificates", finds: "attempt: ", planned: true,
		},
		{
			name: "node-deleted-without-its-uid", file: "internal/machine/teardown.go",
			from:     "	err := s.Target.Nodes.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}}, client.Preconditions{UID: &uid})",
			to:       "	_ = uid\n	err := s.Target.Nodes.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: s.node.Name}})",
			scenario: "replace", finds: "order: ", planned: true,
		},
		{
			name: "agent-forgotten", file: "internal/machine/update.go",
			from: "	if s.unchanged() && !askedToUpdate(s.machine) {", to: "	if s.unchanged() {",
			scenario: "update-by-agent-withdrawn", finds: "agent: |runs v", planned: true,
		},
		{
			name: "uncordoned-from-a-stale-view", file: "internal/machine/drain.go",
			from:     `if err := s.confirm(ctx, "putting its node back into service"); err != nil {`,
			to:       "if err := error(nil); err != nil {",
			scenario: "update-by-agent", finds: "I5: ", planned: true,
		},
		{
			name: "volumes-not-awaited-for-an-update", file: "internal/machine/update.go",
			from:     "	return s.isTrue(v1beta1.ConditionDrained) && s.isTrue(v1beta1.ConditionVolumesDetached)",
			to:       "	return s.isTrue(v1beta1.ConditionDrained)",
			scenario: "drain-for-update", finds: "volumes: ", planned: true,
		},
		{
			name: "node-given-up-at-once-by-force", quick: true, file: "internal/machine/teardown.go",
			from: "s.leftBehind || s.forced() && !s.instanceGone {", to: "s.leftBehind || s.forced() {",
			scenario: "drain-forced", finds: "nodes|the end differs", planned: true,
		},
		{
			name: "adoption-not-durable-at-deletion", file: "internal/machine/adoption.go",
			from:     "	return next, s.writeStatus(ctx)\n	case s.machine.Adopting():",
			to:       "	return next, nil\n	case s.machine.Adopting():",
			scenario: "adopt-then-delete", finds: "nodes",
			plan: "provider/machine adopt instance:crash-after,provider/machine delete instance:crash-after," +
				"provider/machine get instance:time-jumps",
		},
		{
			name: "absence-not-noticed", file: "internal/machineclass/wiring.go",
			from:     "			goes(ctx, e.Object, q)\n			changes(ctx, e.Object, q)",
			to:       "			if !e.DeleteStateUnknown {\n				goes(ctx, e.Object, q)\n			}\n			changes(ctx, e.Object, q)",
			scenario: "namespace-deleted", finds: "settled, but|after the last disturbance", planned: true,
		},
		{
			name: "times-of-other-clocks-trusted", file: "internal/machine/instance.go",
			from: "	return min(max(age/4, time.Second), 30*time.Second)", to: "	return min(age/4, 30*time.Second)",
			scenario: "create", finds: "not settled|steps from the last fault", planned: true,
		},
		{
			name: "made-beyond-what-the-deployment-may-have", file: "internal/machineset/scale.go",
			from: "if s.OverCapacity > 0 {", to: "if false {",
			scenario: "autoscaler-roll", finds: "I3", planned: true,
		},
		{
			name: "token-taken-for-none", quick: true, file: "internal/machine/health.go",
			from:     "(known.launch.token || !errors.Is(err, bootstrap.ErrMayNotRead))",
			to:       "!errors.Is(err, bootstrap.ErrMayNotRead)",
			scenario: "certificates", finds: "tokens are left",
			plan: "provider/machine create Secret@2:freeze-Node,provider/orphans get Secret@6:denied-for-long",
		},
	}
}
