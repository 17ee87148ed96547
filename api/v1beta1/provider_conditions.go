package v1beta1

// Conditions of a Provider, in addition to Available, Progressing and Deleting.
const (
	// ConditionDegraded is True while the operator cannot bring the Provider to its desired state.
	ConditionDegraded = "Degraded"
)

// Reasons of Available on a Provider, in addition to MinimumReplicasAvailable and MinimumReplicasUnavailable.
const (
	// ReasonNotInstalled surfaces when no part of the provider process is installed yet.
	ReasonNotInstalled = "NotInstalled"

	// ReasonNoLeader surfaces when replicas are available but none of them is the leader.
	ReasonNoLeader = "NoLeader"

	// ReasonScaledToZero surfaces when spec.replicas is 0.
	ReasonScaledToZero = "ScaledToZero"
)

// Reasons of Progressing on a Provider, in addition to RollingOut, RolloutComplete and ProgressDeadlineExceeded. If a
// container does not start, the reason of the kubelet is also the reason of Progressing and Degraded: ErrImagePull,
// ImagePullBackOff, InvalidImageName, CreateContainerConfigError and others.
const (
	// ReasonWaitingForNodes surfaces when spec.type is Auto and no Node has a provider ID yet.
	ReasonWaitingForNodes = "WaitingForNodes"

	// ReasonCrashLoopBackOff surfaces when the process exits again and again. The message contains the exit code and,
	// if known, the last lines of output.
	ReasonCrashLoopBackOff = "CrashLoopBackOff"

	// ReasonPodsRefused surfaces when the API server refuses the pods, because of a quota or an admission policy.
	ReasonPodsRefused = "PodsRefused"

	// ReasonUnschedulable surfaces when the scheduler finds no Node for a pod.
	ReasonUnschedulable = "Unschedulable"

	// ReasonNotReady surfaces when a pod runs but does not become ready.
	ReasonNotReady = "NotReady"
)

// Reasons of Degraded on a Provider, in addition to the reasons of Progressing. Progressing is then False with the same
// reason.
const (
	// ReasonAsDesired surfaces when nothing is degraded.
	ReasonAsDesired = "AsDesired"

	// ReasonUnknownType surfaces when Machinist contains no provider of spec.type, and spec.image.repository is not
	// set.
	ReasonUnknownType = "UnknownType"

	// ReasonPlatformMixed surfaces when spec.type is Auto and the Nodes have provider IDs of several platforms.
	ReasonPlatformMixed = "PlatformMixed"

	// ReasonDuplicateType surfaces when an older Provider has the same type.
	ReasonDuplicateType = "DuplicateType"

	// ReasonInvalidValues surfaces when the chart refuses spec.values. The message contains the path of the value.
	ReasonInvalidValues = "InvalidValues"

	// ReasonSecretNotFound surfaces when a Secret in the spec, or its key, does not exist.
	ReasonSecretNotFound = "SecretNotFound"

	// ReasonObjectConflict surfaces when another tool, such as Helm, or another Provider has already created a required
	// object.
	ReasonObjectConflict = "ObjectConflict"

	// ReasonApplyFailed surfaces when the API server refuses an object.
	ReasonApplyFailed = "ApplyFailed"
)

// Reasons of Deleting, on a MachineClass and on a Provider.
const (
	// ReasonInUse surfaces when a class that is being deleted still exists because Machines use it. On a Provider,
	// the reason surfaces when Machines and protected classes still need the provider process.
	ReasonInUse = "InUse"

	// ReasonWithdrawn surfaces when a class and all Machines with an instance of this class are being deleted. The
	// class then creates no more instances. The class is removed when these Machines are gone.
	ReasonWithdrawn = "Withdrawn"
)
