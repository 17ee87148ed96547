package main

// updateMutants are bugs of changes in place that are taken back, or asked for while the instance is being made.
func updateMutants() []mutant {
	return []mutant{
		{
			name: "update-not-written-down", file: "internal/machine/update_asked.go",
			from: "	if askedToUpdate(s.before) {", to: "	if true {",
			scenario: "in-place-withdrawn", finds: "runs v", planned: true,
		},
		{
			name: "updated-from-a-stale-view", file: "internal/machine/update_asked.go",
			from:     "		return s.confirm(ctx, \"its instance is changed\")",
			to:       "		return nil",
			scenario: "in-place-withdrawn", finds: "runs v", planned: true,
		},
		{
			name: "late-update-forgotten", file: "internal/machine/update_asked.go",
			from: "	if !u.begun {", to: "	if false {",
			scenario: "in-place-withdrawn", finds: "runs v", planned: true,
		},
		{
			name: "agent-asked-from-a-stale-view", file: "internal/machine/update_agent.go",
			from:     "if err := s.confirm(ctx, \"the agent on its node is asked for a change\"); err != nil {",
			to:       "if err := error(nil); err != nil {",
			scenario: "update-by-agent-withdrawn", finds: "agent: |runs v", planned: true,
		},
		{
			name: "done-by-the-version-of-a-cached-node", file: "internal/machine/update_agent.go",
			from: "	if reported == nil || ", to: "	if reported != nil || ",
			scenario: "update-by-agent-withdrawn", finds: "agent: ", last: 4016,
		},
		{
			name: "made-from-what-is-asked-for-now", file: "internal/machine/launch.go",
			from:     "		s.machine.Status.Applied = &v1beta1.AppliedStatus{}\n",
			to:       "",
			scenario: "update-by-agent", finds: "agent: |runs v",
		},
	}
}
