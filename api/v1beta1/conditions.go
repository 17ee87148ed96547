package v1beta1

import "time"

// Conditions of a MachineClass, beside Ready and Deleting.
const (
	// ConditionOrphanRemovalBlocked is True while instances without a Machine, found with this class, are not removed
	// until a person sets the annotation machinist.dev/remove-orphans-until on the class. A class without it has none.
	ConditionOrphanRemovalBlocked = "OrphanRemovalBlocked"

	// ConditionUserDataWarning is True while the user data probably does not do what it is meant to do. Machines are
	// created nevertheless. A class without it has none.
	ConditionUserDataWarning = "UserDataWarning"

	// ConditionUserDataChanged is True while machines of the class were created from other user data than the Secret has
	// now. A class without such machines has none.
	ConditionUserDataChanged = "UserDataChanged"

	// ConditionAccountChanged is True while machines of the class have their instance in another account of the cloud than
	// the credentials open now. A class without such machines has none, nor has one whose provider does not tell accounts
	// apart.
	ConditionAccountChanged = "AccountChanged"

	// ConditionJoinBlocked is True while the target cluster, or how its API server is reached, keeps machines from
	// becoming Nodes. Machines are created nevertheless. A class without it has none.
	ConditionJoinBlocked = "JoinBlocked"
)

// Reasons of JoinBlocked.
const (
	// ReasonTokensMayNotRequest surfaces when bootstrap tokens of machines may not create CertificateSigningRequests.
	ReasonTokensMayNotRequest = "TokensMayNotRequest"

	// ReasonEndpointNotReachable surfaces when machines wait for their Nodes, none has become one, and the address of the
	// API server in user data is one of this host or of the inside of a cluster, or does not answer.
	ReasonEndpointNotReachable = "EndpointNotReachable"

	// ReasonEndpointNotTrusted surfaces when the certificate authority in user data does not verify what answers at the
	// address of the API server in user data.
	ReasonEndpointNotTrusted = "EndpointNotTrusted"

	// ReasonAuthorityExpired surfaces when the certificate authority in user data has ended.
	ReasonAuthorityExpired = "AuthorityExpired"
)

// Reasons of UserDataChanged and AccountChanged.
const (
	// ReasonMachinesDiffer surfaces when the content of the Secret with the user data was changed, or that of the Secret
	// with the credentials. Machines that exist stay as they are.
	ReasonMachinesDiffer = "MachinesDiffer"
)

// Reasons of UserDataWarning.
const (
	// ReasonUnknownPlaceholder surfaces when the user data contains what looks like a misspelt placeholder.
	ReasonUnknownPlaceholder = "UnknownPlaceholder"

	// ReasonNodeNotTainted surfaces when a Node registered without the taint machinist.dev/uninitialized although its
	// machine has taints.
	ReasonNodeNotTainted = "NodeNotTainted"

	// ReasonNodeVersionDiffers surfaces when the user data has the placeholder KUBELET_VERSION, and a kubelet registered
	// with another version than its machine asks for.
	ReasonNodeVersionDiffers = "NodeVersionDiffers"

	// ReasonNodeNameDiffers surfaces when a Node registered under another name than the provider expects.
	ReasonNodeNameDiffers = "NodeNameDiffers"
)

// Reasons of Ready on a MachineClass, beside CredentialsNotFound, UserDataNotFound and ProviderUnavailable.
const (
	// ReasonValid surfaces when the provider accepts the class.
	ReasonValid = "Valid"

	// ReasonInvalidProviderSpec surfaces when the provider refuses providerSpec.
	ReasonInvalidProviderSpec = "InvalidProviderSpec"
)

// Reasons of OrphanRemovalBlocked.
const (
	// ReasonMostInstancesOrphaned surfaces when so many instances lost their Machines at once that more likely the
	// Machines were lost by mistake.
	ReasonMostInstancesOrphaned = "MostInstancesOrphaned"

	// ReasonOrphanNodeReady surfaces when the Node of an instance without a Machine is Ready: it does its work.
	ReasonOrphanNodeReady = "OrphanNodeReady"
)

// MaxOrphanRemoval is how far ahead AnnotationRemoveOrphansUntil may be at most.
const MaxOrphanRemoval = 24 * time.Hour

// MaxAdoptionFromCluster is how far ahead AnnotationAdoptFromClusterUntil may be at most.
const MaxAdoptionFromCluster = 24 * time.Hour

// Conditions of a MachineSet. A MachineDeployment shows them for all its sets.
const (
	// ConditionScalingUp is True while there are fewer machines than replicas.
	ConditionScalingUp = "ScalingUp"

	// ConditionScalingDown is True while there are more machines than replicas, or some are being deleted.
	ConditionScalingDown = "ScalingDown"

	// ConditionReplicaFailure is True while a machine cannot be created or deleted.
	ConditionReplicaFailure = "ReplicaFailure"

	// ConditionAdoptionSkipped is True while a matching Machine without an owner is not adopted.
	ConditionAdoptionSkipped = "AdoptionSkipped"

	// ConditionFrozen is True while the creation of machines is stopped for safety.
	ConditionFrozen = "Frozen"

	// ConditionMachinesReady is True while all machines are Ready.
	ConditionMachinesReady = "MachinesReady"

	// ConditionScalableFromZero is False while an autoscaler cannot scale the node group up from zero machines, because
	// it is not known what one of its Nodes offers. It is missing until that is so for the first time, and on what is no
	// node group.
	ConditionScalableFromZero = "ScalableFromZero"
)

// Reasons of ScalableFromZero, beside ClassNotFound.
const (
	// ReasonCapacityKnown surfaces when the annotations of the node group state the CPUs and the memory of its Nodes.
	ReasonCapacityKnown = "CapacityKnown"

	// ReasonCapacityUnknown surfaces when neither the class nor its provider states CPUs and memory.
	ReasonCapacityUnknown = "CapacityUnknown"

	// ReasonNoClass surfaces when the template has an inline providerSpec, for which no provider states a capacity.
	ReasonNoClass = "NoClass"

	// ReasonMalformedCapacity surfaces when an autoscaler cannot read a capacity annotation that a person wrote.
	ReasonMalformedCapacity = "MalformedCapacity"
)

// Reasons of ScalingUp and ScalingDown.
const (
	// ReasonScalingUp surfaces when machines are being created.
	ReasonScalingUp = "ScalingUp"

	// ReasonScalingDown surfaces when machines are being deleted.
	ReasonScalingDown = "ScalingDown"

	// ReasonAtDesiredReplicas surfaces when there are as many machines as replicas. It is the reason of both conditions
	// while they are False.
	ReasonAtDesiredReplicas = "AtDesiredReplicas"

	// ReasonBackingOff surfaces when the replacement of failed machines waits, since earlier ones failed too.
	ReasonBackingOff = "BackingOff"
)

// Reasons of ReplicaFailure, beside InvalidConfiguration.
const (
	// ReasonMachineCreateFailed surfaces when the API server refused a Machine.
	ReasonMachineCreateFailed = "MachineCreateFailed"

	// ReasonMachineDeleteFailed surfaces when the API server refused a deletion.
	ReasonMachineDeleteFailed = "MachineDeleteFailed"

	// ReasonReplacementsFailing surfaces when three machines in a row were replaced because their instances never became
	// Ready nodes, all for the same reason. No more are replaced, except one every hour. It ends when a machine becomes
	// Ready, or when the template changes.
	ReasonReplacementsFailing = "ReplacementsFailing"

	// ReasonTooManyMachines surfaces when the hard ceiling on machines, those being deleted included, is reached.
	ReasonTooManyMachines = "TooManyMachines"

	// ReasonInvalidSelector surfaces when the selector is empty, cannot be parsed or does not match the template.
	ReasonInvalidSelector = "InvalidSelector"

	// ReasonNoFailure surfaces when the failure is over.
	ReasonNoFailure = "NoFailure"
)

// Reasons of AdoptionSkipped.
const (
	// ReasonEnoughReplicas surfaces when a Machine could be adopted and the set has as many as it wants.
	ReasonEnoughReplicas = "EnoughReplicas"

	// ReasonSetDeleting surfaces when a Machine could be adopted and the set is being deleted.
	ReasonSetDeleting = "SetDeleting"

	// ReasonNothingToAdopt surfaces when there is nothing left to adopt.
	ReasonNothingToAdopt = "NothingToAdopt"
)

// Reasons of Frozen, on sets and deployments, and of RemediationAllowed.
const (
	// ReasonOvershoot surfaces when there are more machines than there may be.
	ReasonOvershoot = "Overshoot"

	// ReasonControlPlaneUnreachable surfaces when the control or the target cluster cannot be reached.
	ReasonControlPlaneUnreachable = "ControlPlaneUnreachable"

	// ReasonTargetCredentialsRefused surfaces when the target cluster answers that it does not accept the credentials of
	// the process (401), or does not let it read what it must (403). It is a reason of Deleting and Ready too.
	ReasonTargetCredentialsRefused = "TargetCredentialsRefused"

	// ReasonControlCredentialsRefused surfaces when the control cluster does so. No condition can then be written; it is
	// reported by the process itself, in its metrics, on /readyz and in its log.
	ReasonControlCredentialsRefused = "ControlCredentialsRefused"

	// ReasonMeltdown surfaces when too many nodes became unhealthy at once, over all or in one failure domain.
	ReasonMeltdown = "Meltdown"

	// ReasonFrozen surfaces on RemediationAllowed when the machines' owner is frozen.
	ReasonFrozen = "Frozen"

	// ReasonFrozenByLabel surfaces when a person set the label machinist.dev/freeze.
	ReasonFrozenByLabel = "FrozenByLabel"

	// ReasonThawed surfaces when the freeze is over.
	ReasonThawed = "Thawed"
)

// Reasons of MachinesReady.
const (
	// ReasonAllMachinesReady surfaces when all machines are Ready.
	ReasonAllMachinesReady = "AllMachinesReady"

	// ReasonMachinesNotReady surfaces when some machines are not Ready. The message names the first of them.
	ReasonMachinesNotReady = "MachinesNotReady"
)

// Conditions of a MachineDeployment, beside those of its sets and Paused.
const (
	// ConditionAvailable is True while at least replicas − maxUnavailable machines are available.
	ConditionAvailable = "Available"

	// ConditionProgressing is True while a rollout advances or is complete.
	ConditionProgressing = "Progressing"

	// ConditionRollingOut is True while not all machines are of the newest revision. Its message is the plan's reason
	// for what it does or does not do.
	ConditionRollingOut = "RollingOut"

	// ConditionReconciling is True while the deployment is neither Ready nor Stalled: it is not as specified yet. Its
	// reason and message are those of Ready.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True while the deployment is not Ready and Progressing is False: it does not get on by itself.
	// Its reason and message are those of Ready.
	ConditionStalled = "Stalled"
)

// Reasons of Ready on a MachineDeployment, beside those of Progressing, RollingOut, ScalingUp and ScalingDown. It is
// True exactly when the last change of the deployment was carried out and all machines that it wants, and no others,
// are of the newest revision and available; with strategy InPlace up to date too.
const (
	// ReasonMachinesNotAvailable surfaces when all machines are there and of the newest revision, and some are not
	// available.
	ReasonMachinesNotAvailable = "MachinesNotAvailable"
)

// Reasons of Available, as in apps/v1.
const (
	// ReasonMinimumReplicasAvailable surfaces when enough machines are available.
	ReasonMinimumReplicasAvailable = "MinimumReplicasAvailable"

	// ReasonMinimumReplicasUnavailable surfaces when too few machines are available.
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)

// Reasons of Progressing, as in apps/v1 where they exist there.
const (
	// ReasonNewMachineSetCreated surfaces when a MachineSet was made for the newest revision.
	ReasonNewMachineSetCreated = "NewMachineSetCreated"

	// ReasonFoundNewMachineSet surfaces when an existing MachineSet was found for the newest revision.
	ReasonFoundNewMachineSet = "FoundNewMachineSet"

	// ReasonMachineSetUpdated surfaces when machines of the newest revision were added, or became available.
	ReasonMachineSetUpdated = "MachineSetUpdated"

	// ReasonNewMachineSetAvailable surfaces when the rollout is complete.
	ReasonNewMachineSetAvailable = "NewMachineSetAvailable"

	// ReasonMachineSetCreateError surfaces when the MachineSet of the newest revision cannot be created.
	ReasonMachineSetCreateError = "MachineSetCreateError"

	// ReasonProgressDeadlineExceeded surfaces when a rollout made no progress for spec.progressDeadline.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"

	// ReasonDeploymentPaused surfaces when spec.paused stops rollouts. It is the reason of Paused too.
	ReasonDeploymentPaused = "DeploymentPaused"

	// ReasonDeploymentResumed surfaces when spec.paused was taken back.
	ReasonDeploymentResumed = "DeploymentResumed"

	// ReasonRevisionFailing surfaces when three machines of the newest revision in a row failed to launch, or were given
	// up by health checks before they were Ready: no more of them are made beyond replicas.
	ReasonRevisionFailing = "RevisionFailing"
)

// Reasons of RollingOut.
const (
	// ReasonRollingOut surfaces when machines of an old revision are being replaced.
	ReasonRollingOut = "RollingOut"

	// ReasonRolloutComplete surfaces when all machines are of the newest revision.
	ReasonRolloutComplete = "RolloutComplete"

	// ReasonRolloutBlocked surfaces when nothing can be done now. The message says what is waited for.
	ReasonRolloutBlocked = "RolloutBlocked"

	// ReasonWaitingForDeletion surfaces when strategy OnDelete waits for someone to delete old machines.
	ReasonWaitingForDeletion = "WaitingForDeletion"

	// ReasonWaitingForSelection surfaces when strategy InPlace, orchestration Manual, waits for someone to choose
	// machines.
	ReasonWaitingForSelection = "WaitingForSelection"

	// ReasonWaitingForDisruptionBudget surfaces when MachineDisruptionBudgets, or the annotation do-not-disrupt, allow no
	// machine of an old revision to be disrupted now.
	ReasonWaitingForDisruptionBudget = "WaitingForDisruptionBudget"

	// ReasonVersionSkew surfaces when the template's version is newer than the API server of the target cluster, or more
	// than three minor versions older, and machines would change to it.
	ReasonVersionSkew = "VersionSkew"
)

// Conditions of a MachineHealthCheck.
const (
	// ConditionRemediationAllowed is True while unhealthy machines are marked for remediation. Its other reasons are
	// Meltdown, ControlPlaneUnreachable and Frozen.
	ConditionRemediationAllowed = "RemediationAllowed"
)

// Reasons of RemediationAllowed.
const (
	// ReasonRemediationAllowed surfaces when nothing stops remediation.
	ReasonRemediationAllowed = "RemediationAllowed"

	// ReasonTooManyUnhealthy surfaces when more than spec.maxUnhealthy of the selected machines are unhealthy.
	ReasonTooManyUnhealthy = "TooManyUnhealthy"
)

// Conditions of a MachineDisruptionBudget.
const (
	// ConditionValid is False while the budget cannot be understood. Such a budget allows nothing.
	ConditionValid = "Valid"
)

// Reasons of Valid, beside InvalidSelector.
const (
	// ReasonBudgetUnderstood surfaces when the budget can be understood.
	ReasonBudgetUnderstood = "BudgetUnderstood"

	// ReasonInvalidWindow surfaces when a window has a schedule, time zone or duration that cannot be understood.
	ReasonInvalidWindow = "InvalidWindow"

	// ReasonInvalidMaxDisrupted surfaces when maxDisrupted is neither a number nor a percentage.
	ReasonInvalidMaxDisrupted = "InvalidMaxDisrupted"
)
