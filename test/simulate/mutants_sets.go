package main

// setMutants returns bugs in sets and deployments that contain broken machines next to working machines.
func setMutants() []mutant {
	return []mutant{
		{
			name: "remediation-waits-for-a-replacement", file: "internal/fleet/machineset/scale.go",
			oldText: "		if p.remediate(s, unsteady); len(p.Remediate) == 0 {", newText: "		if len(p.Remediate) == 0 {",
			scenario: "replace-next-to-unhealthy", finds: "settled, but|after the last disturbance",
		},
		{
			name: "marked-machine-waited-for", file: "internal/fleet/machinedeployment/draft.go",
			oldText: "	return min(s.Replicas, max(0, s.Live-s.Expendable))", newText: "	return min(s.Replicas, max(0, s.Live-s.UnavailableFirst))",
			scenario: "scale-down-next-to-pending", finds: "scale-down: ",
		},
		{
			name: "no-way-out-of-on-delete", file: "internal/fleet/machinedeployment/plan_ondelete.go",
			oldText: "		if set.Unlaunched > 0 {", newText: "		if false {",
			scenario: "way-out-of-on-delete", finds: "settled, but|after the last disturbance",
		},
		{
			name: "failure-forgotten-at-deletion", file: "internal/machine/remove.go",
			oldText: "	r.machine.Status.Phase = v1beta1.MachineDeleting //",
			newText: "	r.machine.Status.FailureReason, r.machine.Status.FailureMessage = \"\", \"\"\n" +
				"	r.machine.Status.Phase = v1beta1.MachineDeleting //",
			scenario: "vanished-with-hook", finds: "settled, but|after the last disturbance",
		},
		{
			name: "replacements-never-stop", file: "internal/fleet/machineset/failure_streak.go",
			oldText: "return r.count >= failuresInARow", newText: "return false",
			scenario: "replacements-failing", finds: "retries: ",
		},
		{
			name: "machine-gone-between-passes-not-counted", file: "internal/health/healthcheck/gone_machines.go",
			oldText: "|| !wasReplaced(gone) {", newText: "|| true {",
			scenario: "retries-of-failed", finds: "retries: ",
		},
		{
			name: "scale-down-states-a-rollout", file: "internal/fleet/machineset/deletion_reason.go",
			oldText:  "			p.reasonsToDelete[m.UID] = reason\n",
			newText:  "			_, p.reasonsToDelete[m.UID] = reason, string(v1beta1.DisruptionRollout)\n",
			scenario: "scale-down", finds: "reason: ",
		},
		{
			name: "rollout-states-a-scale-down", file: "internal/fleet/machineset/deletion_reason.go",
			oldText: "		case s.Standalone || left > 0:", newText: "		case true:",
			scenario: "roll", finds: "reason: ",
		},
		{
			name: "partition-ignored", file: "internal/fleet/machinedeployment/plan_stop.go",
			oldText: "	most := max(0, s.Replicas-s.Partition)", newText: "	most := s.Replicas", quick: true,
			scenario: "partition", finds: "the rollout keeps old machines",
		},
		{
			name: "old-promotion-promotes", file: "internal/fleet/machinedeployment/promotion.go",
			oldText:  "d.Annotations[v1beta1.AnnotationPromoteRevision] == strconv.FormatInt(v.number, 10)",
			newText:  "d.Annotations[v1beta1.AnnotationPromoteRevision] != \"\" && strconv.IntSize > 0",
			scenario: "pause-after", finds: "the rollout keeps old machines",
		},
		{
			name: "partition-holds-a-rollback", file: "internal/fleet/machinedeployment/promotion.go",
			oldText:  "set.ReplicasOrDefault() > 0 && v.othersHaveReplicas()",
			newText:  "set.ReplicasOrDefault() > 1000 && v.othersHaveReplicas()",
			scenario: "partition-rolled-back", finds: "settled, but|after the last disturbance",
		},
		{
			name: "step-skipped", file: "internal/fleet/machinedeployment/version_steps.go",
			oldText: "	wanted := low.minor.Next()", newText: "	wanted := low.minor.Next().Next()", quick: true,
			scenario: "version-steps", finds: "the steps are in order|settled, but|after the last disturbance",
		},
		{
			name: "step-does-not-wait-for-deletions", file: "internal/fleet/machinedeployment/version_steps.go",
			oldText:  "		case len(machines[set.UID]) > 0, set.Status.Replicas > 0, exists",
			newText:  "		case exists",
			scenario: "version-steps", finds: "the steps are in order",
		},
		{
			name: "step-forgotten-by-recreate", file: "internal/fleet/machinedeployment/version_steps.go",
			oldText:  "			set == last && isVersionStep(set) && d.ReplicasOrDefault() > 0:",
			newText:  "			false:",
			scenario: "version-steps-recreate", finds: "the steps are in order|settled, but|after the last disturbance",
		},
		{
			name: "missing-step-skipped", file: "internal/fleet/machinedeployment/version_steps.go",
			oldText:  "		step.isLast = true\n		step.blocked = ",
			newText:  "		step.isLast = true\n		_ = ",
			scenario: "version-step-missing", finds: "the steps are in order",
		},
		{
			name: "replacement-states-no-reason", file: "internal/fleet/machineset/apply.go",
			oldText: "		p.done.remediated.add(reasons[m.UID], m)\n", newText: "",
			scenario: "remediate", finds: "reason: ",
		},
	}
}
