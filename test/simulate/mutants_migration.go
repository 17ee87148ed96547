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
			name: "unlisted-instances-taken-for-gone", file: "internal/migration/commit.go",
			from: "if f.Code == CodeCannotImport || f.Code == CodeSecretUnreadable {", to: `if f.Code == "" {`,
			scenario: "migrate-G", finds: "J3: ", plan: "378:denied",
		},
		{
			name: "deleted-with-finalizers", file: "internal/migration/remove.go",
			from:     "if err := each(ctx, p.Parallel, bound, p.strip); err != nil {",
			to:       "if err := each(ctx, p.Parallel, bound[:0], p.strip); err != nil {",
			scenario: "migrate-K", finds: "J3: ",
		},
	}
}
