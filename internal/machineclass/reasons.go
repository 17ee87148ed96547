package machineclass

// Reasons beside those of the API.
const (
	// ReasonInUse surfaces, on the condition Deleting and in an event, when a class that is being deleted waits for the
	// Machines that use it.
	ReasonInUse = "InUse"
)
