package main

// migrationMutants are bugs of what takes fleets over from other systems.
func migrationMutants() []mutant {
	return []mutant{
		{
			name: "old-leases-not-taken", file: "internal/migration/fence.go",
			from: "return r.takeLeases(ctx, m, f, leases)", to: `return "", nil`,
			scenario: "migrate-K", finds: "J1: ",
		},
		{
			name: "copied-unpaused", file: "internal/migration/copies.go",
			from: `annotate(made, v1beta1.AnnotationPaused, "")`, to: "",
			scenario: "migrate-K", finds: "J1: .* unpaused",
		},
		{
			name: "not-released", file: "internal/migration/commit.go",
			from: "case m.instance.Collected:", to: "case m.instance.Collected && left < 0:",
			scenario: "migrate-G", finds: "J3: ",
		},
		{
			name: "deleted-with-finalizers", file: "internal/migration/remove.go",
			from:     "if err := each(ctx, p.Parallel, bound, p.strip); err != nil {",
			to:       "if err := each(ctx, p.Parallel, bound[:0], p.strip); err != nil {",
			scenario: "migrate-K", finds: "J3: ",
		},
		{
			name: "definitions-removed-with-objects", file: "internal/migration/clean.go",
			from: "case len(objects) > 0:", to: "case len(objects) > 1000:",
			scenario: "migrate-K", finds: "J",
		},
		{
			name: "traces-left-on-nodes", file: "internal/migration/commit.go",
			from:     "return traced, each(ctx, p.Parallel, traced,",
			to:       "return nil, each(ctx, p.Parallel, traced[:0],",
			scenario: "migrate-K", finds: "has the mark of the old system",
		},
		{
			name: "frozen-after-the-migration", file: "internal/migration/after.go",
			from: "labels[v1beta1.LabelFreeze] = nil", to: "_ = labels",
			scenario: "migrate-K", finds: "has the label",
		},
		{
			name: "old-policy-left", file: "internal/migration/clean.go",
			from:     "[]string{oldPolicyName(p.migration), newPolicyName(p.migration)}",
			to:       "[]string{newPolicyName(p.migration)}",
			scenario: "migrate-K", finds: "are left",
		},
		{
			name: "not-disowned", file: "internal/migration/abort.go",
			from: "p.pauseAll, p.disownAll, p.clearOwnKeys,", to: "p.pauseAll, p.clearOwnKeys,",
			scenario: "migrate-K-abort", finds: "I1: |J2: ",
		},
		{
			name: "own-keys-left-on-nodes", file: "internal/migration/abort.go",
			from: "p.pauseAll, p.disownAll, p.clearOwnKeys,", to: "p.pauseAll, p.disownAll,",
			scenario: "migrate-K-abort", finds: "J6: ",
		},
		{
			name: "fence-opened-to-a-former-leader", file: "internal/migration/waits.go",
			from: "left := p.Timing.FormerLeader - ", to: "left := 0 - ",
			scenario: "migrate-K-abort", finds: "J1: ", plan: "221:two-leaders,234:relist-Migration",
		},
	}
}
