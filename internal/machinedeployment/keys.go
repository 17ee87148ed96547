package machinedeployment

// Reasons of conditions, beside those that package v1beta1 declares.
const (
	// ReasonStrategyUnsupported surfaces on Progressing when the rollout's strategy is not carried out by this version.
	ReasonStrategyUnsupported = "StrategyUnsupported"

	// ReasonInvalidSelector surfaces on Progressing when the selector cannot be used: nothing is done.
	ReasonInvalidSelector = "InvalidSelector"
)
