package main

func machineMutants() []mutant {
	return []mutant{
		{
			name: "refused-delete-repeated-by-events", file: "internal/machine/pace.go",
			oldText: "	if never || left == 0 {", newText: "	if never || left >= 0 {",
			scenario: "deletes-refused", finds: "pace: ",
		},
		{
			name: "successors-evicted-for-ever", file: "internal/machine/drain/successors.go",
			oldText: "	return successor && (toleratesCordon(pod) || after >= schedulerLag)",
			newText: "	return successor && after < 0",
			alsoRemoved: &mutant{file: "internal/machine/drain/plan.go",
				oldText: "	case p.deadline.isOver(p.Now) && pod.CreationTimestamp.After(p.Start):", newText: "	case p.deadline.isOver(p.Now) && s.IsAbandoned:"},
			scenario: "drain-comes-back", finds: "settled|steps|after the last disturbance",
		},
		{
			name: "other-id-ignored", file: "internal/machine/register_by_name.go",
			oldText: "		return p.decideOtherID(ctx, c)", newText: "		return candidate{}, nil",
			scenario: "other-provider-ids", finds: "settled|nodes, not",
		},
		{
			name: "forced-machine-unrecorded", file: "internal/machine/remove_forced.go",
			oldText: "	if err := r.ForceDeleted.AddForceDeleted(ctx, r.machine, r.now); err != nil {", newText: "	if err := error(nil); err != nil {",
			scenario: "force-delete-refused", finds: "I1",
		},
		{
			name: "left-instance-waits-for-a-person", file: "internal/health/orphans/force_deleted.go",
			oldText: `	return deleted && in.MachineUID != ""`, newText: `	return deleted && in.MachineUID == ""`,
			scenario: "force-delete-refused", finds: "settled|instances, not",
		},
		{
			name: "lost-node-left", file: "internal/health/orphans/lost_nodes.go",
			oldText: "		if before[uid] && left > 0 {", newText: "		if before[uid] && left < 0 {",
			scenario: "finalizer-stripped-late", finds: "settled|nodes, not",
		},
		{
			name: "waiting-machine-holds-its-class", file: "internal/class/machineclass/resolve/deletion.go",
			oldText:  "	return launched != nil && launched.Reason == v1beta1.ReasonClassDeleting && !HasInstance(m)",
			newText:  "	return false && launched != nil",
			scenario: "class-applied-again-with-its-fleet", finds: "settled, but|after the last disturbance",
		},
	}
}
