package main

// mutant is a bug that somebody might write. The world must find each of them: a simulation that passes with one is not
// worth its time.
type mutant struct {
	name string
	// file is changed by replacing from, which occurs there exactly once, with to.
	file, from, to string
	// without is what is taken out as well: a second defence, which would hide that the first one is gone.
	without *mutant
	// plain takes out of the world the dimension that the bug is there for, where no flag does.
	plain []*mutant
	// quick is true for what many runs find, the first of them within a few seconds: CI plants an even sample of these.
	quick bool
	// scenarios are those that can show it, all if there are none.
	scenario string
	// finds is what one of the violations must say.
	finds string
	// last is a seed that found one that is rare, or that of plan. It is tried first, and finds it until the code takes
	// another path.
	last int
	// plan is a plan that found it, of seed last or 1. It is tried first, and after it a sweep of plans.
	plan string
	// cloud are the semantics of the cloud that show it, and nothing else does. Plans of one fault are tried under them.
	cloud string
	// corruption is one that found it, and nothing else than corruptions does. It is tried first, and after it a sweep
	// of corruptions.
	corruption string
	// handovers is true for what is found where shards are handed over, and nowhere else.
	handovers bool
	// planned is true for what a sweep of plans finds, which comes before random runs.
	planned bool
}

// withoutCapacityCheck lets a set make what it was ordered, whatever capacity its deployment has (rule
// set-keeps-surge).
var withoutCapacityCheck = &mutant{file: "internal/machineset/capacity.go", from: "	if len(siblings) == 0 {",
	to: "	if len(siblings) >= 0 {"}

// mutants are the planted bugs.
var mutants = []mutant{
	{
		name: "trigger-dropped", quick: true, file: "internal/machine/wiring.go",
		from:     "Keys: handler.EnqueueRequestsFromMapFunc(machinesOfNode(cache)), Predicate: nodeChanged(r.Signals)}",
		to:       "Keys: handler.Funcs{}, Predicate: nodeChanged(r.Signals)}",
		scenario: "create", finds: "settled, but|after the last disturbance",
	},
	{
		name: "poll-dropped", quick: true, file: "internal/machine/controller.go",
		from: "return reconcile.Result{RequeueAfter: p.requeueAfter}, nil", to: "return reconcile.Result{}, nil",
		scenario: "delete", finds: "settled, but",
	},
	{
		name: "stale-sets", file: "internal/machinedeployment/claim.go",
		from: "	found := pointers(cached.Items)\n	if p.known.cache.Confirmed() {",
		to:   "	found := pointers(cached.Items)\n	if true {", without: withoutCapacityCheck,
		scenario: "roll-after-restart", finds: "I3", plan: "manager/machinedeployment get MachineDeployment:freeze-MachineSet",
	},
	{
		name: "trusted-too-early", file: "internal/machinedeployment/controller.go",
		from: "err == nil && p.cacheConfirmed", to: "err == nil", without: withoutCapacityCheck,
		scenario: "roll-after-restart", finds: "I3", plan: "manager/machinedeployment get MachineDeployment:freeze-MachineSet",
	},
	{
		name: "finalizer-removed-early", quick: true, file: "internal/machine/teardown.go",
		from:     "s.operationBegan())))\n		return wait, nil",
		to:       "s.operationBegan())))\n		return next, nil",
		scenario: "scale-down", finds: "I1|order",
	},
	{
		name: "create-without-adoption", file: "internal/machine/launch.go",
		from: "Token:     attempt.String(),", to: "Token:     attempt.String() + s.now.String(),",
		scenario: "create", finds: "I2",
	},
	{
		name: "create-from-stale-view", file: "internal/machine/launch.go",
		from: `if err := s.confirm(ctx, "creating its instance"); err != nil {`, to: "if err := error(nil); err != nil {",
		scenario: "create-then-delete", finds: "when settled|instances",
		plan: "provider/machine patch Machine@2:restart-9-back,get Secret@8:freeze-Machine",
	},
	{
		name: "no-settling", file: "internal/machine/teardown.go",
		from:     "	left := since.Add(s.Cloud.CreateSettle()).Sub(s.now)\n	if left <= 0 {\n		return next",
		to:       "	left := since.Sub(since)\n	if left <= 0 {\n		return next",
		scenario: "create-then-delete", finds: "I1",
	},
	{
		name: "node-before-instance", quick: true, file: "internal/machine/teardown.go",
		from: "s.deleteInstance, s.deleteNode, s.release,", to: "s.deleteNode, s.deleteInstance, s.release,",
		scenario: "scale-down", finds: "order",
	},
	{
		name: "lost-instance-not-searched-for", file: "internal/machine/teardown.go",
		from: "s.findLost, s.awaitPreDrainHooks,", to: "s.awaitPreDrainHooks,",
		scenario: "create-then-delete", finds: "nodes",
	},
	{
		name: "doubtful-writes-trusted", quick: true, file: "internal/freshness/tracker.go",
		from: `	t.minVersion, t.confirmed = "", false`, to: "	t.confirmed = false",
		scenario: "scale-up", finds: "I3", plan: "get MachineSet:freeze-Machine,create Machine:lost,create Machine:lost",
	},
	{
		name: "mark-ignored-by-the-set", quick: true, file: "internal/machinestate/precedence.go",
		from: "!MarkedForDeletion(m),", to: "true,",
		scenario: "autoscaler", finds: "autoscaler: the manager deleted",
	},
	{
		name: "mark-seen-late-by-the-set", quick: true, file: "internal/machineset/controller.go",
		from: "case plan.Chosen && !p.asNewAsSpec:", to: "case false:",
		scenario: "autoscaler", finds: "autoscaler: the manager deleted",
	},
	{
		name: "mark-never-dropped", quick: true, file: "internal/machineset/autoscaler_annotation.go",
		from: "return marked, err == nil", to: "return marked, err == nil && false",
		scenario: "autoscaler", finds: "still has a mark",
	},
	{
		name: "mark-ignored-by-the-deployment", file: "internal/machinedeployment/plan_resize.go",
		from:     "owed = d.releaseMarked(active, d.SizedFor-d.Replicas)",
		to:       "owed = d.releaseMarked(nil, d.SizedFor-d.Replicas)",
		scenario: "autoscaler-roll", finds: "autoscaler: the manager deleted",
	},
	{
		name: "mark-seen-late-by-the-deployment", file: "internal/machinedeployment/claim.go",
		from: "!takenBack && (seen || !p.mayShrink(sets)) {", to: "!takenBack && (seen || true) {",
		scenario: "autoscaler-roll", finds: "autoscaler: the manager deleted",
	},
	{
		name: "capacity-forced", file: "internal/autoscaling/write.go",
		from: "client.FieldOwner(FieldManager)); err", to: "client.FieldOwner(FieldManager), client.ForceOwnership); err",
		scenario: "autoscaler-from-zero", finds: "which a person set",
	},
	{
		name: "capacity-of-the-first-class", file: "internal/autoscaling/wiring.go",
		from:     "!equality.Semantic.DeepEqual(templateOf(was).ClassRef, templateOf(is).ClassRef) ||",
		to:       "",
		scenario: "autoscaler-from-zero", finds: "the capacity of web is",
	},
	{
		name: "selection-ignored", file: "internal/machineset/handover.go",
		from: "	if onlySelected {", to: "	if onlySelected && n < 0 {",
		scenario: "in-place-by-selection", finds: "selection: ",
	},
	{
		name: "stale-answer-of-an-agent", quick: true, file: "internal/machine/update_agent.go",
		from:     "map[string]string{v1beta1.NodeAnnotationUpdateRequested: version}, v1beta1.NodeAnnotationUpdateResult)",
		to:       "map[string]string{v1beta1.NodeAnnotationUpdateRequested: version})",
		scenario: "update-by-agent-again", finds: "agent: |settled, but|after the last disturbance",
		plan: "provider/machine patch Node:freeze-Node",
	},
	{
		name: "agent-asked-before-the-drain", quick: true, file: "internal/machine/update_agent.go",
		from: "	if proceed, err := s.drain.run(ctx); err != nil {", to: "	if proceed, err := next, error(nil); err != nil {",
		scenario: "update-by-agent", finds: "agent: ",
	},
	{
		name: "stale-count", file: "internal/machineset/controller.go",
		from: "case plan.DependsOnCount() && !p.trusted:", to: "case false:",
		scenario: "scale-up", finds: "I3",
	},
	{
		name: "size-not-remembered", file: "internal/machinedeployment/apply.go",
		from:     "othersActive := slices.ContainsFunc(v.activeSets(), func(active int) bool { return active != i })",
		to:       "othersActive := len(v.activeSets()) > 1",
		scenario: "autoscaler-roll", finds: "after the last disturbance|not settled",
	},
	{
		name: "adoption-not-written-down", file: "internal/machine/adoption.go",
		from: "	if !s.machine.Adopting() {\n		s.machine.Status.Launch =", to: "	if s.gone {\n		s.machine.Status.Launch =",
		scenario: "adopt", finds: "its tags are yet to come|its instance .* is not",
	},
	{
		name: "instance-of-nobody-deleted", file: "internal/machine/adoption.go",
		from: "s.teardown.notOurs = true // Nobody was ever asked to make it so.", to: "_ = s.teardown.notOurs",
		scenario: "adopt", finds: "adoption: ",
	},
	{
		name: "younger-not-triggered", file: "internal/machine/wiring.go",
		from: "Keys: handler.EnqueueRequestsFromMapFunc(machinesOfInstance(cache))", to: "Keys: handler.Funcs{}",
		scenario: "adopt", finds: "settled, but|after the last disturbance|still waits",
	},
	{
		name: "failed-machine-not-kept", file: "internal/machineset/remediation.go",
		from: "!preservation.Due(m) && ", to: "(true || preservation.Due(m)) && ",
		scenario: "preserve", finds: "preservation: ",
	},
	{
		name: "kept-machine-scaled-down", file: "internal/machineset/scale.go",
		from: "staying := slices.Concat(plain, withoutDueForPreservation(notable))", to: "staying := active",
		scenario: "preserve", finds: "preservation: ",
	},
	{
		name: "preserved-machine-counted", file: "internal/machine/preservation.go",
		from: "		m.OwnerReferences = slices.DeleteFunc", to: "		_ = slices.DeleteFunc",
		scenario: "preserve", finds: "preservation: |after the last disturbance|settled, but|not settled",
	},
	{
		name: "availability-left-to-the-deployment", file: "internal/machineset/availability.go",
		from: "	if k.MinAvailable <= 0 {", to: "	if true {",
		scenario: "autoscaler", finds: "I3: manager deleted",
	},
	{
		name: "token-left", quick: true, file: "internal/bootstrap/token.go",
		from: "	err = t.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID})\n", to: "",
		scenario: "create-with-token", finds: "tokens are left",
	},
	{
		name: "deleting-machines-without-a-node-counted", quick: true, file: "internal/machineset/scale.go",
		from: "	switch surplus := len(active) - replicas; {",
		to: "	for _, m := range members {\n		if !machinestate.Live(m) && m.Status.NodeRef == nil && replicas > 0 {\n			replicas--\n		}\n	}\n" +
			"	switch surplus := len(active) - replicas; {",
		scenario: "incident-scaled-back-at-once", finds: "incident: one machine less is one machine", planned: true,
	},
	{
		name: "throttled-with-no-hint-not-tried-again", file: "internal/machine/retry_policy.go",
		from:     "	return max(d, retryAfter)",
		to:       "	if retryAfter == 0 && c.reason == v1beta1.ReasonProviderUnavailable {\n		return 24 * time.Hour\n	}\n	return max(d, retryAfter)",
		scenario: "create-then-delete", finds: "after the last disturbance",
	},
}
