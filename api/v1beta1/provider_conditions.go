package v1beta1

// Conditions of a Provider, beside Available, Progressing and Deleting.
const (
	// ConditionDegraded is True while the operator cannot bring a Provider to what spec asks for.
	ConditionDegraded = "Degraded"
)

// Reasons of Available on a Provider, beside MinimumReplicasAvailable and MinimumReplicasUnavailable.
const (
	// ReasonNotInstalled surfaces when nothing of the provider process is installed yet.
	ReasonNotInstalled = "NotInstalled"

	// ReasonNoLeader surfaces when replicas are available and none of them leads.
	ReasonNoLeader = "NoLeader"

	// ReasonScaledToZero surfaces when spec.replicas is 0.
	ReasonScaledToZero = "ScaledToZero"
)

// Reasons of Progressing on a Provider, beside RollingOut, RolloutComplete and ProgressDeadlineExceeded. Where the
// kubelet says why a container does not start, its reason is that of Progressing and Degraded: ErrImagePull,
// ImagePullBackOff, InvalidImageName, CreateContainerConfigError and others.
const (
	// ReasonWaitingForNodes surfaces when spec.type is Auto and no Node has a provider ID yet.
	ReasonWaitingForNodes = "WaitingForNodes"

	// ReasonCrashLoopBackOff surfaces when the process ends again and again. The message has its last words.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"

	// ReasonPodsRefused surfaces when the API server refuses the pods: a quota, or an admission policy.
	ReasonPodsRefused = "PodsRefused"

	// ReasonUnschedulable surfaces when the scheduler finds no Node for a pod.
	ReasonUnschedulable = "Unschedulable"

	// ReasonNotReady surfaces when a pod runs and does not become ready.
	ReasonNotReady = "NotReady"
)

// Reasons of Degraded on a Provider, beside those of Progressing. Progressing is then False with the same reason.
const (
	// ReasonAsDesired surfaces when nothing is degraded.
	ReasonAsDesired = "AsDesired"

	// ReasonUnknownType surfaces when no provider of spec.type comes with Machinist and spec.image.repository is unset.
	ReasonUnknownType = "UnknownType"

	// ReasonPlatformMixed surfaces when spec.type is Auto and the Nodes' provider IDs are of several platforms.
	ReasonPlatformMixed = "PlatformMixed"

	// ReasonDuplicateType surfaces on the younger of two Providers of one type.
	ReasonDuplicateType = "DuplicateType"

	// ReasonInvalidValues surfaces when the chart refuses spec.values. The message has the path of the value.
	ReasonInvalidValues = "InvalidValues"

	// ReasonSecretNotFound surfaces when a Secret that spec names, or its key, does not exist.
	ReasonSecretNotFound = "SecretNotFound"

	// ReasonObjectConflict surfaces when an object exists already that this Provider did not make, such as one that helm
	// installed.
	ReasonObjectConflict = "ObjectConflict"

	// ReasonApplyFailed surfaces when the API server refuses an object.
	ReasonApplyFailed = "ApplyFailed"
)

// Reasons of Deleting, on a MachineClass and on a Provider.
const (
	// ReasonInUse surfaces when a class that is being deleted waits for the Machines that use it and still serves them,
	// or when a Provider waits for the Machines and the protected classes that need its process.
	ReasonInUse = "InUse"

	// ReasonWithdrawn surfaces on a class that is being deleted while no Machine that stays has an instance of it. The
	// class serves no Machine any more, and goes when those with an instance are gone.
	ReasonWithdrawn = "Withdrawn"
)
