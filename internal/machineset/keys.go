package machineset

const (
	// annotationNoCreate stops a set from making or adopting machines, by presence. A MachineDeployment with strategy
	// OnDelete puts it on the sets of its old revisions.
	annotationNoCreate = "machinist.dev/no-create"

	// annotationLastApplied on a Machine lists the keys that its set's template put there, so that a key which the
	// template loses is removed and one that somebody else added stays.
	annotationLastApplied = "machinist.dev/last-applied-template"
)

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
