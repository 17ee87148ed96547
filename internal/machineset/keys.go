package machineset

// Reasons of events on a MachineSet, beside those of its conditions.
const (
	// reasonMachinesCreated surfaces once for all machines that a pass created.
	reasonMachinesCreated = "MachinesCreated"

	// reasonMachinesDeleted surfaces once for all machines that a pass deleted to scale down.
	reasonMachinesDeleted = "MachinesDeleted"

	// reasonMachinesRemediated surfaces once for all failed or unhealthy machines that a pass deleted to replace them.
	reasonMachinesRemediated = "MachinesRemediated"

	// reasonMachinesAdopted surfaces once for all machines that a pass adopted.
	reasonMachinesAdopted = "MachinesAdopted"

	// reasonMachinesReleased surfaces once for all machines that a pass released.
	reasonMachinesReleased = "MachinesReleased"
)
