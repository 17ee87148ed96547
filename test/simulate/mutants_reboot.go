package main

// rebootMutants returns bugs in the code that reboots machines.
func rebootMutants() []mutant {
	return []mutant{
		{
			name: "reboot-repeated", file: "internal/machine/serve_reboot.go",
			oldText:  "	requested = requested && (last == nil || last.State == v1beta1.RebootDraining || last.Request != request)\n",
			newText:  "	requested = requested && (last == nil || last.State != v1beta1.RebootRebooting || last.Request != request)\n",
			scenario: "reboot", finds: "reboot: .* is started again",
		},
		{
			name: "reboot-without-drain", file: "internal/machine/serve_reboot.go",
			oldText: "	if !silent {\n", newText: "	if silent {\n",
			scenario: "reboot", finds: "I7",
		},
		{
			name: "reboot-taint-stays", file: "internal/machine/serve_reboot.go",
			oldText: "	if last.OutOfService {\n", newText: "	if last.OutOfService && p.now.IsZero() {\n",
			scenario: "reboot-heals", finds: "settled|after the last disturbance",
		},
		{
			name: "reboot-of-a-replaced-machine", file: "internal/machine/machinestate/machinestate.go",
			oldText: " && reason != v1beta1.ReasonRebootRequested", newText: "",
			scenario: "reboot-heals", finds: "is deleted",
		},
	}
}
