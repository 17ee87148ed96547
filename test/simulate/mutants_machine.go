package main

func machineMutants() []mutant {
	return []mutant{
		{
			name: "refused-delete-repeated-by-events", file: "internal/machine/pace.go",
			from: "	if never || left == 0 {", to: "	if never || left >= 0 {",
			scenario: "deletes-refused", finds: "pace: ",
		},
		{
			name: "successors-evicted-for-ever", file: "internal/machine/drain/successors.go",
			from: "	return successor && (toleratesCordon(pod) || after >= schedulerLag)",
			to:   "	return successor && after < 0",
			alsoRemoved: &mutant{file: "internal/machine/drain/plan.go",
				from: "	case p.deadline.isOver(p.Now) && pod.CreationTimestamp.After(p.Start):", to: "	case p.deadline.isOver(p.Now) && s.Left:"},
			scenario: "drain-comes-back", finds: "settled|steps|after the last disturbance",
		},
		{
			name: "other-id-ignored", file: "internal/machine/register_by_name.go",
			from: "		return p.decideOtherID(ctx, c)", to: "		return candidate{}, nil",
			scenario: "other-provider-ids", finds: "settled|nodes, not",
		},
		{
			name: "forced-machine-unrecorded", file: "internal/machine/remove_forced.go",
			from: "	if err := r.ForceDeleted.AddForceDeleted(ctx, r.machine, r.now); err != nil {", to: "	if err := error(nil); err != nil {",
			scenario: "force-delete-refused", finds: "I1",
		},
		{
			name: "left-instance-waits-for-a-person", file: "internal/health/orphans/force_deleted.go",
			from: `	return deleted && in.MachineUID != ""`, to: `	return deleted && in.MachineUID == ""`,
			scenario: "force-delete-refused", finds: "settled|instances, not",
		},
		{
			name: "lost-node-left", file: "internal/health/orphans/lost_nodes.go",
			from: "		if before[uid] && left > 0 {", to: "		if before[uid] && left < 0 {",
			scenario: "finalizer-stripped-late", finds: "settled|nodes, not",
		},
		{
			name: "waiting-machine-holds-its-class", file: "internal/class/machineclass/resolve/deletion.go",
			from:     "	return launched != nil && launched.Reason == v1beta1.ReasonClassDeleting && !HasInstance(m)",
			to:       "	return false && launched != nil",
			scenario: "class-applied-again-with-its-fleet", finds: "settled, but|after the last disturbance",
		},
	}
}
