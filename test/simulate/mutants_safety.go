package main

// lastTry asks the target cluster once more before a machine goes without it (rule deletion-waits-for-target).
var lastTry = &mutant{file: "internal/machine/outage.go", from: "left <= 0 && !s.targetAnswers(ctx)", to: "left <= 0"}

// withoutOwnAge has an orphan's age judged by the provider's clock alone: who knows an orphan for so long has seen it
// twice.
var withoutOwnAge = &mutant{
	file: "internal/safety/orphans/plan.go",
	from: "reported >= r.MinAge+clockDifference || reported >= r.MinAge && known", to: "reported >= r.MinAge || known",
}

// withoutBrake has a person confirm each removal of an orphan (rule person-confirms-removal).
var withoutBrake = &mutant{
	file: "internal/safety/orphans/confirm.go",
	from: "slices.ContainsFunc(scopes[d.ID].sources, func(source client.Object) bool { return confirmed[source.GetUID()] })", to: "slices.Contains([]bool{true}, len(confirmed) >= 0)",
}

// safetyMutants are bugs of what watches over a fleet: health checks, outages, orphans, freezes, marks and
// certificates.
func safetyMutants() []mutant {
	return []mutant{
		{
			name: "outages-before-the-lead-counted", quick: true, file: "internal/machine/outage.go",
			from: `p.machine.Spec.ProviderID != "" && began.Before(p.leading)`, to: "p.now.Before(p.leading)",
			scenario: "late-in-target-outage", finds: "I6", planned: true,
		},
		{
			name: "left-behind-at-once", file: "internal/machine/outage.go",
			from: "min(s.now.Sub(since), s.now.Sub(s.targetFailsSince()))", to: "s.now.Sub(since)", without: lastTry,
			scenario: "late-in-target-outage", finds: "tokens are left|nodes, not", last: 1,
		},
		{
			name: "one-failure-after-an-outage", file: "internal/machine/teardown.go",
			from:     "m.teardown.targetUnreachableSince = time.Time{} })",
			to:       "_ = m.teardown.targetUnreachableSince })",
			scenario: "late-in-target-outage", finds: "tokens are left", last: 5,
		},
		{
			name: "left-behind-without-a-last-try", file: lastTry.file, from: lastTry.from, to: lastTry.to,
			scenario: "change-in-target-outage", finds: "tokens are left|nodes, not", last: 7030239,
		},
		{
			name: "gone-where-nobody-may-look", file: "internal/machine/outage.go",
			from: "s.machine.Status.NodeRef == nil && !refuses", to: "s.machine.Status.NodeRef == nil && since.Before(s.now)",
			scenario: "change-while-target-refuses", finds: "refuses the credentials",
		},
		{
			name: "orphan-list-from-the-cache", file: "internal/safety/orphans/lists.go",
			from: "	version, token := \"\", \"\"\n",
			to: "	if all, known := (&v1beta1.MachineList{}), map[types.UID]bool{}; c.Client.List(ctx, all) == nil {\n		for i := range all.Items {\n			known[all.Items[i].UID] = true\n		}\n		return known, nil, nil\n	}\n" +
				"	version, token := \"\", \"\"\n",
			without:  withoutBrake,
			scenario: "orphans-seen-late", finds: "orphans: .* has it",
		},
		{
			name: "no-second-observation", file: "internal/safety/orphans/plan.go", without: withoutOwnAge,
			from: "case !again:", to: "case !again && s.MaxDeletes < 0:",
			scenario: "orphans", finds: "orphans: .* first seen",
		},
		{
			name: "orphan-age-ignored", file: "internal/safety/orphans/collector.go",
			from:     "	return &Collector{Options: o, pageSize: machinesPerPage}",
			to:       "	o.Rules.MinAge = 0\n	return &Collector{Options: o, pageSize: machinesPerPage}",
			scenario: "orphans", finds: "orphans: .* old",
		},
		{
			name: "orphan-not-confirmed", file: "internal/safety/orphans/pass.go",
			from: "case !Confirm(", to: "case ctx == nil && !Confirm(",
			scenario: "orphans", finds: "orphans: .* it is cluster",
		},
		{
			name: "orphan-not-only-reported", file: "internal/safety/orphans/plan.go",
			from: "	case s.ReportOnly:", to: "	case s.ReportOnly && s.MaxDeletes < 0:",
			scenario: "orphans-reported", finds: "orphans: .* only be reported",
		},
		{
			name: "most-instances-are-orphans", file: "internal/safety/orphans/plan.go",
			from: "most[namespace] = n >= leastForMost &&", to: "most[namespace] = n >= 100*leastForMost &&",
			scenario: "machines-lost", finds: "orphans: .* one of most",
		},
		{
			name: "most-orphans-forgotten", file: "internal/safety/orphans/confirm.go",
			from:     "&& blockedReason(class) == v1beta1.ReasonMostInstancesOrphaned {",
			to:       "&& blockedReason(class) == \"\" && state.Now.IsZero() {",
			scenario: "machines-lost", finds: "orphans: .* one of most",
		},
		{
			name: "ready-orphan-removed", file: "internal/safety/orphans/plan.go",
			from: "	case s.NodeReady[id] != \"\":", to: "	case s.NodeReady[id] == \"?\":",
			without: &mutant{file: "internal/safety/orphans/nodes.go", from: "		case !confirmed:\n",
				to: "		case !confirmed && ctx == nil:\n"},
			scenario: "machines-lost", finds: "orphans: .* node is Ready",
		},
		{
			name: "orphans-right-after-an-outage", file: "internal/safety/orphans/plan.go",
			from: "s.Stable.IsZero() || s.Now.Sub(s.Stable) < s.Period:", to: "s.Stable.IsZero():",
			scenario: "orphans-in-outage", finds: "orphans: .* all is well since",
		},
		{
			name: "thaw-without-new-clocks", file: "internal/healthcheck/controller.go",
			from: "p.clocks.Stable = since", to: "_ = since",
			without:  &mutant{file: "internal/healthcheck/controller.go", from: "		p.clocks.Thawed = p.OutageEnded()\n", to: ""},
			scenario: "target-outage", finds: "I6: machine .* marked",
		},
		{
			name: "meltdown-without-new-clocks", file: "internal/healthcheck/controller.go",
			from: "	situation.Clocks.Recovered = p.state.recovered\n", to: "",
			scenario: "meltdown", finds: "I6: machine .* marked",
		},
		{
			name: "meltdown-ignored", file: "internal/healthcheck/judge.go",
			from: "!tooMany && !s.Meltdown.In(subject.domains()...) &&", to: "!tooMany &&",
			scenario: "meltdown", finds: "I6: machine .* while the nodes",
		},
		{
			name: "no-bound-of-unhealthy-machines", file: "internal/healthcheck/judge.go",
			from: "tooMany := unwell > limit", to: "tooMany := unwell > limit+len(subjects)",
			scenario: "too-many-unhealthy", finds: "health: machine .* although",
		},
		{
			name: "health-timeout-by-another-clock", file: "internal/healthcheck/observed.go",
			from: "	if c.Observed != nil {", to: "	if c.Observed != nil && now.IsZero() {",
			scenario: "clocks-differ", finds: "I6: machine .* marked|after the last disturbance",
		},
		{
			name: "marked-from-a-stale-view", file: "internal/healthcheck/remediation_request.go",
			from: "if v.Health != Unhealthy {", to: "if s.Now.IsZero() {",
			scenario: "remediate", finds: "I6: machine .* is well since",
		},
		{
			name: "recovered-machine-replaced", file: "internal/machineset/remediation.go",
			from: "	return min(at.Add(recoveryGrace).Sub(now), began", to: "	return min(0, at.Sub(now), began",
			scenario: "remediate", finds: "I3|health: ",
		},
		{
			name: "judgement-never-due", file: "internal/healthcheck/controller.go",
			from: "		p.requeueIn(j.RecheckAfter)\n", to: "",
			scenario: "remediate", finds: "settled, but|after the last disturbance",
		},
		{
			name: "outage-taken-for-silence", file: "internal/reachability/state.go",
			from:     "if !s.Unreachable && s.failures >= failuresUntilUnreachable {",
			to:       "if !s.Unreachable && s.failures >= 1000*failuresUntilUnreachable {",
			scenario: "target-outage", finds: "I6",
		},
		{
			name: "outage-counts-as-time-to-join", file: "internal/machine/outage.go",
			from: "	began, _ = reachability.ExcludeOutages(past, began, time.Time{})\n", to: "	_ = past\n",
			without: &mutant{file: "internal/machine/outage.go",
				from: "	counted, _ = reachability.ExcludeOutages(past, counted, time.Time{})\n", to: ""},
			scenario: "change-in-target-outage", finds: "I6: machine .* failed",
		},
		{
			name: "freeze-ignored-by-the-set", file: "internal/machineset/scale.go",
			from:     "	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok {",
			to:       "	if reason, ok := s.Set.Labels[v1beta1.LabelFreeze]; ok && reason == \"\" {",
			scenario: "freeze", finds: "freeze: ",
		},
		{
			name: "never-thawed", file: "internal/safety/overshoot/decide.go",
			from: "	case s.Frozen && s.Live <= calm:", to: "	case s.Frozen && s.Live < min(calm, 0):",
			scenario: "overshoot", finds: "is frozen",
		},
		{
			name: "owned-by-selector", file: "internal/machineset/observe.go",
			from:     "client.MatchingFields{index.MachineByOwner: string(set.UID)}",
			to:       "client.MatchingLabels(set.Spec.Selector.MatchLabels)",
			scenario: "overshoot", finds: ".",
		},
		{
			name: "marks-never-taken-off", file: "internal/machinedeployment/node_tainter.go",
			from:     "	after := withoutOutdatedTaint(&before, m.Spec.Node)\n",
			to:       "	after := withoutOutdatedTaint(&before, m.Spec.Node)\n	after = nil\n",
			scenario: "marks", finds: "cannot be used|of an old revision|has the annotation",
		},
		{
			name: "marks-seen-late", file: "internal/machinedeployment/node_tainter.go",
			from: " || want == untainted && appeared)", to: " || appeared && want == leaveAsIs)",
			scenario: "marks", finds: "cannot be used|of an old revision|has the annotation", last: 5355,
		},
		{
			name: "certificate-for-another-name", file: "internal/bootstrap/approval/decide.go",
			from: "	case r.Wanted != name:", to: "	case r.Wanted == \"\":",
			scenario: "certificates", finds: "approval: ",
		},
		{
			name: "certificate-of-another-node", file: "internal/bootstrap/kubeletcsr/request.go",
			from: "	case r.Kind != Join && r.Requester != r.Wanted:", to: "	case r.Kind == NoKubelet:",
			scenario: "certificates", finds: "approval: ",
		},
		{
			name: "certificate-for-an-unknown-address", file: "internal/bootstrap/approval/decide.go",
			from: "others := r.others(f.Addresses)", to: "others := r.others(f.Addresses)[:0]",
			scenario: "certificates", finds: "approval: ",
		},
		{
			name: "certificate-without-its-machine", file: "internal/bootstrap/approval/controller.go",
			from: "		if decision, err = r.confirm(ctx, request, facts); err != nil {", to: "		if err = ctx.Err(); err != nil {",
			scenario: "certificates", finds: "approval: .* is deleted since",
		},
	}
}
