package machinedeployment

// Annotations that a deployment puts on its MachineSets, beside those that package v1beta1 names.
const (
	// AnnotationSizedFor on the newest set is the number of replicas of the deployment that its sets were last sized
	// for. Another number means that someone changed replicas since, and the sets follow in proportion.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationRolloutAfter on a set is the rolloutAfter (RFC 3339) that was past when the set was made: its machines
	// are newer than that, whatever the clocks say.
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationNoCreate on a set stops it from making machines, by presence. With strategy OnDelete it is on sets of
	// old revisions, so that a machine that someone deletes is replaced by one of the new revision.
	AnnotationNoCreate = "machinist.dev/no-create"
)

// Reasons of conditions, beside those that package v1beta1 declares.
const (
	// ReasonStrategyUnsupported surfaces on Progressing when the rollout's strategy is not carried out by this version.
	ReasonStrategyUnsupported = "StrategyUnsupported"

	// ReasonInvalidSelector surfaces on Progressing when the selector cannot be used: nothing is done.
	ReasonInvalidSelector = "InvalidSelector"
)
