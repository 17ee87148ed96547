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
			name: "drain-skips-no-pod", quick: true, file: "internal/machine/drain/plan.go",
			oldText: "	case treatment.behavior == v1beta1.DrainBehaviorSkip:", newText: "	case treatment.behavior == \"\":",
			scenario: "drain-rules", finds: "drain rules: .* which a rule skips",
		},
		{
			name: "drain-evicts-pods-that-must-complete", quick: true, file: "internal/machine/drain/plan.go",
			oldText: "	case treatment.behavior == v1beta1.DrainBehaviorWaitCompleted:", newText: "	case treatment.behavior == \"\":",
			scenario: "drain-rules", finds: "drain rules: .* which must complete",
		},
		{
			name: "drain-does-not-await-completion", quick: true, file: "internal/machine/drain/plan.go",
			oldText:  "	return s.Action != ActionSkip && s.Action != ActionIgnore\n",
			newText:  "	return s.Action != ActionSkip && s.Action != ActionIgnore && s.Action != ActionAwaitCompletion\n",
			scenario: "drain-rules", finds: "I7: instance .* is disturbed while pod|drain rules: .* of order",
		},
		{
			name: "completion-awaited-for-ever", quick: true, file: "internal/machine/drain/plan.go",
			oldText: "	case s.forced:\n", newText: "	case s.forced && treatment.behavior != v1beta1.DrainBehaviorWaitCompleted:\n",
			scenario: "drain-rules-at-the-deadline", finds: "settled|after the last disturbance",
		},
		{
			name: "drain-order-ignored", quick: true, file: "internal/machine/drain/plan.go",
			oldText: "		case s.order > first.order:\n", newText: "		case s.order > first.order+100:\n",
			scenario: "drain-rules", finds: "drain rules: .* of order",
		},
		{
			name: "label-of-a-pod-before-the-rule", quick: true, file: "internal/machine/drain/rules.go",
			oldText: "	for _, r := range rules {\n		if r.pods", newText: "	for _, r := range rules {\n		if pod.Labels[podDrainLabel] == \"\" && r.pods",
			scenario: "drain-labels-of-pods", finds: "I7: instance .* is disturbed while pod web",
		},
		{
			name: "label-of-a-pod-ignored", quick: true, file: "internal/machine/drain/rules.go",
			oldText: "	case \"waitcompleted\":", newText: "	case \"wait completed\":",
			scenario: "drain-labels-of-pods", finds: "drain rules: .* which must complete",
		},
		{
			name: "volume-pods-in-parallel", quick: true, file: "internal/machine/drain/volume_pods.go",
			oldText: "		if busy == \"\" {", newText: "		if busy == \"\" || s.order == 0 {",
			scenario: "drain-volumes-one-at-a-time", finds: "volume pods: ",
		},
		{
			name: "volume-of-the-former-pod-ignored", quick: true, file: "internal/machine/drain/volume_pods.go",
			oldText: "		if used[a.PersistentVolume] {", newText: "		if used[a.PersistentVolume] || a.PersistentVolume != \"\" {",
			scenario: "drain-volumes-one-at-a-time", finds: "volume pods: .* is attached",
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
