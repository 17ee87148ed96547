package main

// powerMutants returns bugs in the code that stops and starts machines.
func powerMutants() []mutant {
	return []mutant{
		{
			name: "power-stop-before-the-drain", file: "internal/machine/serve_power.go",
			oldText: "	case err != nil || proceed == next:\n", newText: "	case err != nil || proceed != onSlot:\n",
			scenario: "power-start", finds: "I7",
		},
		{
			name: "power-stopped-machine-unhealthy", file: "internal/health/healthcheck/evaluate.go",
			oldText:  "	case machinestate.IsStopped(m) && !machinestate.HasVanished(m):",
			newText:  "	case machinestate.IsStopped(m) && machinestate.HasVanished(m):",
			scenario: "power-stop", finds: "the replacement of machine",
		},
		{
			name: "power-forced-at-once", file: "internal/machine/serve_power.go",
			oldText: "	case left <= 0:\n		action =", newText: "	case left <= v1beta1.ShutdownTimeout:\n		action =",
			scenario: "power-start", finds: "power: .* without its operating system",
		},
		{
			name: "power-shutdown-not-completed", file: "internal/machine/serve_power.go",
			oldText:  "	if power != nil && power.Step == v1beta1.PowerStepShuttingDown {\n		if report, err := p.shutDown",
			newText:  "	if power != nil && power.Step == \"\" {\n		if report, err := p.shutDown",
			scenario: "power-start-early", finds: "power: .* before its shutdown is complete",
		},
		{
			name: "power-never-forced", file: "internal/machine/serve_power.go",
			oldText: "		action = provider.PowerForceOff\n", newText: "",
			scenario: "power-shutdown-ignored", finds: "settled|steps|after the last disturbance|is not possible",
		},
		{
			name: "power-node-stays-cordoned", file: "internal/machine/serve_power.go",
			oldText: "		p.machine.Status.Power = nil\n", newText: "",
			scenario: "power-start", finds: "settled|after the last disturbance",
		},
		{
			name: "power-hibernation-never-ends", file: "internal/fleet/machineset/hibernation.go",
			oldText: "	to.Spec.PowerState = v1beta1.PowerRunning\n", newText: "",
			scenario: "hibernate", finds: "settled|after the last disturbance",
		},
	}
}
