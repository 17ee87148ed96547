package machinedeployment

// Reasons of conditions, beside those that package v1beta1 declares.
const (
	// ReasonInvalidSelector surfaces on Progressing when the selector cannot be used: nothing is done.
	ReasonInvalidSelector = "InvalidSelector"
)
