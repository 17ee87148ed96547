package machineset

// Reasons of events on a MachineSet, and of its conditions, beside those that package v1beta1 declares.
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

	// reasonMachinesHandedOver surfaces once for all machines that a pass handed over to another set.
	reasonMachinesHandedOver = "MachinesHandedOver"

	// reasonHandOverFailed surfaces on ReplicaFailure when a machine could not be handed over to another set.
	reasonHandOverFailed = "HandOverFailed"
)
