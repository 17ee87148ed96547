package main

// withoutCapacityCheck removes a check from the set controller. A set then creates all requested machines, even if its
// deployment has no capacity for them (rule set-keeps-surge).
var withoutCapacityCheck = &mutant{file: "internal/fleet/machineset/capacity.go", oldText: "	if len(siblings) == 0 {",
	newText: "	if len(siblings) >= 0 {"}

// withoutOwnAge removes a check from the orphan collection, which then measures the age of orphans only with the
// provider's clock. A process that has known an orphan for its minimum age has seen it at least twice.
var withoutOwnAge = &mutant{
	file:    "internal/health/orphans/plan.go",
	oldText: "reported >= r.MinAge+clockDifference || reported >= r.MinAge && known", newText: "reported >= r.MinAge || known",
}

// controllerMutants returns bugs in the controllers, at least one for each safety rule.
func controllerMutants() []mutant {
	return []mutant{
		{
			name: "trigger-dropped", quick: true, file: "internal/machine/wiring.go",
			oldText:  "Keys: handler.EnqueueRequestsFromMapFunc(machinesOfNode(cache)), Predicate: nodeChanged(r.Signals)}",
			newText:  "Keys: handler.Funcs{}, Predicate: nodeChanged(r.Signals)}",
			scenario: "create", finds: "settled, but|after the last disturbance",
		},
		{
			name: "stale-sets", file: "internal/fleet/machinedeployment/claim.go",
			oldText: "	found := pointers(cached.Items)\n	if p.known.cache.IsConfirmed() {",
			newText: "	found := pointers(cached.Items)\n	if true {", alsoRemoved: withoutCapacityCheck,
			scenario: "roll-after-restart", finds: "I3", plan: "manager/machinedeployment get MachineDeployment:freeze-MachineSet",
		},
		{
			name: "finalizer-removed-early", quick: true, file: "internal/machine/remove.go",
			oldText:  "		return r.after(pollInterval(r.now.Sub(r.operationBegan()))), nil",
			newText:  "		return next, nil",
			scenario: "scale-down", finds: "I1|order",
		},
		{
			name: "create-without-adoption", file: "internal/machine/launch.go",
			oldText: "Token:     attempt.String(),", newText: "Token:     attempt.String() + p.now.String(),",
			scenario: "create", finds: "I2",
		},
		{
			name: "create-from-stale-view", file: "internal/machine/launch.go",
			oldText: `if err := p.confirm(ctx, "creating its instance"); err != nil {`, newText: "if err := error(nil); err != nil {",
			scenario: "create-then-delete", finds: "when settled|instances",
			plan: "provider/machine patch Machine@2:restart-9-back,get Secret@8:freeze-Machine",
		},
		{
			name: "node-before-instance", quick: true, file: "internal/machine/controller.go",
			oldText: "r.orByForce(r.deleteInstance), r.deleteNode, r.release)", newText: "r.deleteNode, r.orByForce(r.deleteInstance), r.release)",
			scenario: "scale-down", finds: "order",
		},
		{
			name: "doubtful-writes-trusted", quick: true, file: "internal/platform/freshness/tracker.go",
			oldText: `	t.minVersion, t.confirmed = "", false`, newText: "	t.confirmed = false",
			scenario: "scale-up", finds: "I3", plan: "get MachineSet:freeze-Machine,create Machine:lost,create Machine:lost",
		},
		{
			name: "mark-ignored-by-the-set", quick: true, file: "internal/machine/machinestate/precedence.go",
			oldText: "!MarkedForDeletion(m),", newText: "true,",
			scenario: "autoscaler", finds: "autoscaler: the manager deleted",
		},
		{
			name: "selection-ignored", file: "internal/fleet/machineset/handover.go",
			oldText: "	if order.OnlySelected {", newText: "	if order.OnlySelected && n < 0 {",
			scenario: "in-place-by-selection", finds: "selection: ",
		},
		{
			name: "agent-asked-before-the-drain", quick: true, file: "internal/machine/controller.go",
			oldText: "	if proceed, err := r.drainNode(ctx); err != nil || proceed", newText: "	if proceed, err := next, error(nil); err != nil || proceed",
			scenario: "update-by-agent", finds: "agent: ",
		},
		{
			name: "instance-of-nobody-deleted", file: "internal/machine/launch_adoption.go",
			oldText: "r.notOurs = true // The Machine's tags were never requested from the cloud.", newText: "_ = r.notOurs",
			scenario: "adopt", finds: "adoption: ",
		},
		{
			name: "failed-machine-not-kept", file: "internal/fleet/machineset/remediation.go",
			oldText: "!preservation.MustPreserve(m) && ", newText: "(true || preservation.MustPreserve(m)) && ",
			scenario: "preserve", finds: "preservation: ",
		},
		{
			name: "preserve-now-ignored", quick: true, file: "internal/machine/preservation/preservation.go",
			oldText:  "	case v1beta1.PreserveNow:\n	case v1beta1.PreserveWhenFailed:\n		if !replacedForFailure(m)",
			newText:  "	case v1beta1.PreserveNow:\n		return false\n	case v1beta1.PreserveWhenFailed:\n		if !replacedForFailure(m)",
			scenario: "preserve", finds: "machines are preserved",
		},
		{
			name: "token-left", quick: true, file: "internal/class/bootstrap/token.go",
			oldText: "	err = t.Client.Delete(ctx, found, client.Preconditions{UID: &found.UID})\n", newText: "",
			scenario: "create-with-token", finds: "tokens are left",
		},
		{
			name: "no-fence", file: "internal/machine/cloud/fenced_driver.go",
			oldText: "	if e == changes {", newText: "	if e == changes && c == nil {",
			scenario: "scale-down", finds: "fence: ", planned: true,
		},
		{
			name: "deletion-not-fenced", file: "internal/machine/cloud/fenced_driver.go",
			oldText: "return call(ctx, c, \"Delete\", changes,", newText: "return call(ctx, c, \"Delete\", reads,",
			scenario: "scale-down", finds: "fence: ", planned: true,
		},
		{
			name: "capacity-of-another-resource", quick: true, file: "internal/fleet/autoscaling/capacity.go",
			oldText:  "put(v1beta1.AutoscalerMemoryAnnotation, quantity(node.resources, corev1.ResourceMemory))",
			newText:  "put(v1beta1.AutoscalerMemoryAnnotation, quantity(node.resources, corev1.ResourceCPU))",
			scenario: "autoscaler-from-zero", finds: "the capacity of web is",
		},
		{
			name: "credentials-in-an-error", file: "internal/machine/remove.go",
			oldText:  "		return r.deleteFailed(err, inputs), nil\n	}\n	r.callSucceeded()",
			newText:  "		secret, _ := inputs.Credentials.Get(\"token\")\n		return r.deleteFailed(fmt.Errorf(\"%w: %s\", err, secret.Reveal()), inputs), nil\n	}\n	r.callSucceeded()",
			scenario: "delete", finds: "I10", planned: true,
		},
		{
			name: "attempt-not-raised", file: "internal/machine/update.go",
			oldText: "Attempt: m.NextLaunchAttempt(), Old", newText: "Attempt: m.LaunchAttempt(), Old",
			scenario: "replace", finds: "attempt: ", planned: true,
		},
		{
			name: "budget-ignored", file: "internal/machine/drain/plan.go",
			oldText: "		forced:   p.deadline.isDeletionTime(grace(pod), p.Now),", newText: "		forced:   true,",
			scenario: "drain-never-allowed", finds: "I7: .* before its time|I7: .* before a drain began",
		},
		{
			name: "volumes-not-awaited", file: "internal/machine/drain/volumes.go",
			oldText: "	if len(attached) == 0 {\n		return Outcome{IsDone: true,", newText: "	if len(attached) >= 0 {\n		return Outcome{IsDone: true,",
			scenario: "drain-same-names", finds: "volumes: instance",
		},
		{
			name: "pre-terminate-hook-ignored", file: "internal/machine/controller.go",
			oldText: "r.awaitPreTerminateHooks, r.orByForce(r.deleteInstance),", newText: "r.orByForce(r.deleteInstance),",
			scenario: "hooks", finds: "hooks: instance",
		},
		{
			name: "pause-ignored-at-deletion", file: "internal/machine/remove.go",
			oldText: "	if machinestate.IsPaused(p.machine) {\n", newText: "	if machinestate.IsPaused(p.machine) && p.finalizerRemoved {\n",
			scenario: "paused-deletion", finds: "pause: ",
		},
		{
			name: "update-not-written-down", file: "internal/machine/update_request.go",
			oldText: "	if updateRequested(p.original) {", newText: "	if true {",
			scenario: "in-place-withdrawn", finds: "runs v", planned: true,
		},
		{
			name: "one-read-is-enough", file: "internal/machine/serve_absence.go",
			oldText: "	if first.IsZero() {",
			newText: "	if first.IsZero() && recheck < 0 {",
			cloud:   "reads-flicker", finds: "vanished",
		},
		{
			name: "absent-while-created", file: "internal/machine/serve_absence.go",
			oldText: "	if left := p.createsWithin(); left > 0 {", newText: "	if left := p.createsWithin(); left > time.Hour {",
			cloud: "creates-hidden", finds: "vanished",
		},
		{
			name: "unknown-taken-for-gone", file: "internal/machine/serve_absence.go",
			oldText: "	case r.deletionAccepted():", newText: "	case r.deletionAccepted() || result.Gone:",
			cloud: "reads-late", finds: "I1",
		},
		{
			name: "grant-not-reserved", file: "internal/fleet/disruption/ledger.go",
			oldText: "		r.grants[c.Machine.UID] = false\n", newText: "		_ = r.grants[c.Machine.UID]\n",
			scenario: "budgets-overlap", finds: "budget: ", seed: 2, plan: "200:lost",
		},
		{
			name: "exemption-ignored-in-remediation", file: "internal/fleet/disruption/view.go",
			oldText:  "	if until, exempt := ExemptUntil(c.Machine, v.now); exempt && machinestate.IsLive(c.Machine) {",
			newText:  "	if until, exempt := ExemptUntil(c.Machine, v.now); exempt && machinestate.IsLive(c.Machine) && c.Reason != v1beta1.DisruptionRemediation {",
			scenario: "budget-of-the-broken", finds: "exempt: ",
		},
		{
			name: "gone-where-nobody-may-look", file: "internal/machine/remove_node.go",
			oldText: "r.machine.Status.NodeRef == nil && !refuses", newText: "r.machine.Status.NodeRef == nil && since.Before(r.now)",
			scenario: "change-while-target-refuses", finds: "refuses the credentials",
		},
		{
			name: "no-second-observation", file: "internal/health/orphans/plan.go", alsoRemoved: withoutOwnAge,
			oldText: "case !again:", newText: "case !again && s.MaxDeletes < 0:",
			scenario: "orphans", finds: "orphans: .* first seen",
		},
		{
			name: "most-instances-are-orphans", file: "internal/health/orphans/plan.go",
			oldText: "most[namespace] = n >= minMostOrphaned &&", newText: "most[namespace] = n >= 100*minMostOrphaned &&",
			scenario: "machines-lost", finds: "orphans: .* most instances are orphans",
		},
		{
			name: "meltdown-ignored", file: "internal/health/healthcheck/max_unhealthy.go",
			oldText: "!tooFew && !s.Meltdown.Affects(subject.domains()...) &&", newText: "!tooFew &&",
			scenario: "meltdown", finds: "I6: machine .* while the nodes",
		},
		{
			name: "no-bound-of-unhealthy-machines", file: "internal/health/healthcheck/max_unhealthy.go",
			oldText: "tooFew := unwell > most,", newText: "tooFew := unwell > most+len(subjects),",
			scenario: "too-many-unhealthy", finds: "health: machine .* although",
		},
		{
			name: "lower-end-of-range-ignored", file: "internal/health/healthcheck/max_unhealthy.go",
			oldText: "unwell > most, unwell < least", newText: "unwell > most, unwell < least-len(subjects)",
			scenario: "unhealthy-range", finds: "health: machine .* although only",
		},
		{
			name: "two-remediations-of-a-machine", quick: true, file: "internal/health/healthcheck/external_plan.go",
			oldText: "	if len(f.Remediations) == 0 && f.mayCreate() {", newText: "	if f.mayCreate() {",
			scenario: "remediation-changed", finds: "remediation: machine .* has 2 remediations",
		},
		{
			name: "remediation-of-healthy-machine", file: "internal/health/healthcheck/external_plan.go",
			oldText:  "isMarked(m, v1beta1.ReasonExternalRemediation) && f.health() == HealthUnhealthy",
			newText:  "isMarked(m, v1beta1.ReasonExternalRemediation)",
			scenario: "remediation-template-late", finds: "remediation: the remediation of machine .* is created",
			planned: true,
		},
		{
			name: "replaced-before-timeout", quick: true, file: "internal/health/healthcheck/external.go",
			oldText: "	if left <= 0 {", newText: "	if left <= e.Timeout {",
			scenario: "remediation-by-operator", finds: "remediation: machine .* is replaced",
		},
		{
			name: "operator-not-told-about-timeout", quick: true, file: "internal/health/healthcheck/external.go",
			oldText: "		return Progress{TimeIsUp: true}", newText: "		return Progress{HasFailed: true}",
			scenario: "remediation-by-operator", finds: "remediation: machine .* was not told to stop",
		},
		{
			name: "remediation-of-recovered-machine-stays", quick: true, file: "internal/health/healthcheck/external_plan.go",
			oldText: "	case f.health() == HealthHealthy:", newText: "	case false:",
			scenario: "remediation-by-operator", finds: "is left",
		},
		{
			name: "remediation-of-gone-machine-stays", quick: true, file: "internal/health/healthcheck/external_plan.go",
			oldText:  "		return \"the Machine no longer exists\"\n	case !machinestate.IsLive(m):",
			newText:  "		return \"\"\n	case false:",
			scenario: "remediation-changed", finds: "is left",
		},
		{
			name: "running-remediation-deleted", quick: true, file: "internal/health/healthcheck/external_plan.go",
			oldText: "	case f.health() == HealthHealthy:", newText: "	case !f.IsWanted:",
			scenario: "remediation-by-operator", finds: "remediation: the remediation of machine .* is deleted",
		},
		{
			name: "failed-remediation-replaced", quick: true, file: "internal/machine/machinestate/machinestate.go",
			oldText:  "	return reason == v1beta1.ReasonExternalRemediation || reason == v1beta1.ReasonExternalRemediationFailed",
			newText:  "	return reason == v1beta1.ReasonExternalRemediation",
			scenario: "remediation-by-operator", finds: "health: .* which was not found unhealthy",
		},
		{
			name: "machine-condition-without-timeout", file: "internal/health/healthcheck/evaluate.go",
			oldText: "v.add(wrong.Timeout.Duration, Signal{UID: m.UID,", newText: "v.add(wrong.Timeout.Duration/10, Signal{UID: m.UID,",
			scenario: "machine-condition", finds: "I6: machine .* after its health timeout began",
		},
		{
			name: "machine-condition-ignored", file: "internal/health/healthcheck/evaluate.go",
			oldText: "if c == nil || c.Status != wrong.Status {", newText: "if c == nil || c.Status != \"\" {",
			scenario: "machine-condition", finds: "no working GPU",
		},
		{
			name: "readiness-gate-ignored", file: "internal/machine/serve_health.go",
			oldText: "		case corev1.ConditionTrue:\n			continue", newText: "		case corev1.ConditionTrue, corev1.ConditionFalse:\n			continue",
			scenario: "readiness-gates", finds: "gate: machine .* is Ready",
		},
		{
			name: "outage-taken-for-silence", file: "internal/platform/reachability/state.go",
			oldText:  "if !s.Unreachable && s.failures >= failuresUntilUnreachable {",
			newText:  "if !s.Unreachable && s.failures >= 1000*failuresUntilUnreachable {",
			scenario: "target-outage", finds: "I6",
		},
		{
			name: "outages-count", file: "internal/platform/reachability/state.go",
			oldText: "		if to.After(from) {", newText: "		if to.Before(from) {",
			scenario: "join-in-target-outage", finds: "I6: machine .* failed to join after only",
		},
		{
			name: "windows-close-early", file: "internal/platform/window/window.go",
			oldText:  "duration: int64(in.Duration.Duration / time.Second)}",
			newText:  "duration: int64(in.Duration.Duration / time.Second / 2)}",
			scenario: "budget-windows", finds: "budget: ",
		},
		{
			name: "freeze-ignored-by-the-set", file: "internal/fleet/machineset/scale.go",
			oldText:  "	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok {",
			newText:  "	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok && reason == \"\" {",
			scenario: "freeze", finds: "freeze: ",
		},
		{
			name: "certificate-for-another-name", file: "internal/class/bootstrap/approval/decide.go",
			oldText: "	case r.RequestedNode != name:", newText: "	case r.RequestedNode == \"\":",
			scenario: "certificates", finds: "approval: ",
		},
		{
			name: "old-leases-not-taken", file: "internal/transfer/migration/fence.go",
			oldText: "return r.takeLeases(ctx, m, f, leases, scope.aborting)", newText: `return "", nil`,
			scenario: "migrate-K", finds: "J1: ",
		},
		{
			name: "not-released", file: "internal/transfer/migration/commit.go",
			oldText: "case m.instance.Collected:", newText: "case m.instance.Collected && left < 0:",
			scenario: "migrate-G", finds: "J3: ",
		},
		{
			name: "not-disowned", file: "internal/transfer/migration/abort.go",
			oldText: "p.pauseAll, p.disownAll, p.clearOwnKeys,", newText: "p.pauseAll, p.clearOwnKeys,",
			scenario: "migrate-K-abort", finds: "I1: |J2: ",
		},
		{
			name: "own-keys-left-on-nodes", file: "internal/transfer/migration/abort.go",
			oldText: "p.pauseAll, p.disownAll, p.clearOwnKeys,", newText: "p.pauseAll, p.disownAll,",
			scenario: "migrate-K-abort", finds: "J6: ",
		},
		{
			name: "old-objects-not-protected", file: "internal/transfer/migration/fence_record.go",
			oldText: "recordSource: m.Spec.Source,", newText: `recordSource: "none",`, scenario: "migrate-K", finds: "J7: ",
		},
		{
			name: "copies-not-protected", file: "internal/transfer/migration/fence_record.go",
			oldText: `recordCopies: "Closed",`, newText: `recordCopies: "Open",`, scenario: "migrate-K", finds: "J4: ",
		},
		{
			name: "common-lease-not-held", file: "internal/platform/process/fence/joint.go", handovers: true,
			oldText: "	if err := j.hold(ctx, record); err != nil {\n		return err\n	}\n	if !j.ownFound {",
			newText: "	if !j.ownFound {", finds: "two owners",
		},
		{
			name: "lease-of-another-shard", file: "internal/platform/sharding/shard.go", handovers: true,
			oldText: "Index(namespace, s.Count) == s.Index", newText: "Index(namespace, s.Count) <= s.Index", finds: "two owners",
		},
		{
			name: "lease-not-checked", file: "internal/platform/process/fence/fence.go", handovers: true,
			oldText: "age >= f.deadline {", newText: "age >= 2*f.deadline {", finds: "two owners",
		},
	}
}
