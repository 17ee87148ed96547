package main

// rebootMutants returns bugs in the code that reboots machines.
func rebootMutants() []mutant {
	return []mutant{
		{
			name: "reboot-of-a-replaced-machine", file: "internal/machine/machinestate/machinestate.go",
			oldText: " && reason != v1beta1.ReasonRebootRequested", newText: "",
			scenario: "reboot-heals", finds: "is deleted",
		},
	}
}
