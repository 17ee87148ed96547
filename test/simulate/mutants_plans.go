package main

// planMutants are bugs that show where something goes wrong at one effect, or begins there.
func planMutants() []mutant {
	return []mutant{
		{
			name: "no-fence", file: "internal/cloud/cloud.go",
			from: "	if e == changes {", to: "	if e == changes && c == nil {",
			scenario: "scale-down", finds: "fence: ", planned: true,
		},
		{
			name: "throttled-taken-for-gone", file: "internal/machine/deletion.go",
			from: "		p.deleteFailed(err)\n		return wait, nil", to: "		if provider.CodeOf(err) == provider.Throttled {\n			return next, nil\n		}\n		p.deleteFailed(err)\n		return wait, nil",
			scenario: "delete", finds: "I1|order", planned: true,
		},
		{
			name: "forbidden-taken-for-done", file: "internal/machine/health.go",
			from: "errors.Is(err, bootstrap.ErrMayNotRead)", to: "apierrors.IsForbidden(err) || errors.Is(err, bootstrap.ErrMayNotRead)",
			scenario: "create-with-token", finds: "tokens are left", planned: true,
		},
		{
			name: "conflict-taken-for-success", file: "internal/machine/controller.go",
			from: "	if errors.Is(err, errStale) || apierrors.IsConflict(err) {", to: "	if apierrors.IsConflict(err) {\n		return reconcile.Result{}, nil\n	}\n	if errors.Is(err, errStale) {",
			scenario: "create", finds: "at rest, but|after the last disturbance", planned: true,
		},
		{
			name: "first-count-from-the-cache", file: "internal/machineset/memory.go",
			from: "r = &recollection{uid: set.UID}", to: "r = &recollection{uid: set.UID, floor: \"1\"}",
			scenario: "scale-up", finds: "I3", planned: true,
		},
		{
			name: "user-data-told", file: "internal/machine/launch.go",
			from: "Type:           instance.Type,", to: "Type:           string(inputs.UserData),",
			scenario: "create", finds: "I10", planned: true,
		},
		{
			name: "credentials-told-at-an-error", file: "internal/machine/deletion.go",
			from: "		p.deleteFailed(err)\n		return wait, nil", to: "		secret, _ := inputs.Credentials.Get(\"token\")\n		p.deleteFailed(fmt.Errorf(\"%w: %s\", err, secret.Reveal()))\n		return wait, nil",
			scenario: "delete", finds: "I10", planned: true,
		},
	}
}
