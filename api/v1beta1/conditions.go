package v1beta1

import "time"

// Conditions of a MachineClass, in addition to Ready and Deleting.
const (
	// ConditionOrphanRemovalBlocked is True while Machinist needs the permission of an administrator to remove
	// instances without a Machine. Machinist found these instances with the credentials of this class. To permit the
	// removal, set the annotation machinist.dev/remove-orphans-until on the class. The condition is missing while
	// Machinist does not need the permission.
	ConditionOrphanRemovalBlocked = "OrphanRemovalBlocked"

	// ConditionUserDataWarning is True while the user data probably does not work as intended, and is missing
	// otherwise. While the condition is True, Machinist still creates machines.
	ConditionUserDataWarning = "UserDataWarning"

	// ConditionUserDataChanged is True while the class has machines whose user data differs from the current content
	// of the Secret. While there is no such machine, the condition is missing.
	ConditionUserDataChanged = "UserDataChanged"

	// ConditionCapacityAvailable is False while the cloud has no capacity for instances of the class, and becomes True
	// when the cloud has created an instance again. The condition is missing until the cloud has refused an instance.
	ConditionCapacityAvailable = "CapacityAvailable"

	// ConditionAccountChanged is True while the class has machines whose instances are not in the cloud account of
	// the current credentials. While there is no such machine, the condition is missing. If the provider cannot
	// distinguish accounts, the condition is always missing.
	ConditionAccountChanged = "AccountChanged"

	// ConditionJoinBlocked is True while the configuration of the target cluster, or the API server address in the
	// user data, prevents machines from becoming Nodes. Otherwise, the condition is missing. While the condition is
	// True, Machinist still creates machines.
	ConditionJoinBlocked = "JoinBlocked"
)

// Reasons of JoinBlocked.
const (
	// ReasonTokensMayNotRequest surfaces when the bootstrap tokens of machines may not create
	// CertificateSigningRequests.
	ReasonTokensMayNotRequest = "TokensMayNotRequest"

	// ReasonEndpointNotReachable surfaces when no machine of the class has become a Node yet, and the API server
	// address in the user data is probably wrong. The address is local to one host or one cluster, or no API server
	// answers at the address.
	ReasonEndpointNotReachable = "EndpointNotReachable"

	// ReasonEndpointNotTrusted surfaces when the certificate authority in the user data does not verify the certificate
	// of the API server.
	ReasonEndpointNotTrusted = "EndpointNotTrusted"

	// ReasonAuthorityExpired surfaces when the certificate authority in the user data has expired.
	ReasonAuthorityExpired = "AuthorityExpired"
)

// Reasons of UserDataChanged and AccountChanged.
const (
	// ReasonMachinesDiffer surfaces when the user data or the credentials in the Secrets of the class have changed.
	// Machinist does not change existing machines because of this difference.
	ReasonMachinesDiffer = "MachinesDiffer"
)

// Reasons of UserDataWarning.
const (
	// ReasonUnknownPlaceholder surfaces when the user data contains text that looks like a misspelled placeholder.
	ReasonUnknownPlaceholder = "UnknownPlaceholder"

	// ReasonNodeNotTainted surfaces when a machine has taints, but its Node registered without the taint
	// machinist.dev/uninitialized.
	ReasonNodeNotTainted = "NodeNotTainted"

	// ReasonNodeVersionDiffers surfaces when the user data contains the placeholder KUBELET_VERSION, but a kubelet
	// registered with a version that its machine did not request.
	ReasonNodeVersionDiffers = "NodeVersionDiffers"

	// ReasonNodeNameDiffers surfaces when the name of a registered Node differs from the name that the provider
	// expects.
	ReasonNodeNameDiffers = "NodeNameDiffers"
)

// Reasons of Ready on a MachineClass, in addition to CredentialsNotFound, UserDataNotFound and ProviderUnavailable.
const (
	// ReasonValid surfaces when the provider accepts the class.
	ReasonValid = "Valid"

	// ReasonInvalidProviderSpec surfaces when the provider refuses providerSpec.
	ReasonInvalidProviderSpec = "InvalidProviderSpec"
)

// Reasons of OrphanRemovalBlocked.
const (
	// ReasonMostInstancesOrphaned surfaces when so many instances lost their Machines at the same time that the cause
	// is probably a mistake.
	ReasonMostInstancesOrphaned = "MostInstancesOrphaned"

	// ReasonOrphanNodeReady surfaces when an instance without a Machine is probably in use, because its Node is Ready.
	ReasonOrphanNodeReady = "OrphanNodeReady"
)

// MaxOrphanRemoval limits how far in the future the time in AnnotationRemoveOrphansUntil may be.
const MaxOrphanRemoval = 24 * time.Hour

// MaxAdoptionFromCluster limits how far in the future the time in AnnotationAdoptFromClusterUntil may be.
const MaxAdoptionFromCluster = 24 * time.Hour

// Conditions of a MachineSet. A MachineDeployment has the same conditions, which summarize the conditions of all its
// sets.
const (
	// ConditionScalingUp is True while there are fewer machines than replicas.
	ConditionScalingUp = "ScalingUp"

	// ConditionScalingDown is True while there are more machines than replicas, or while machines are being deleted.
	ConditionScalingDown = "ScalingDown"

	// ConditionReplicaFailure is True while a machine cannot be created or deleted.
	ConditionReplicaFailure = "ReplicaFailure"

	// ConditionAdoptionSkipped is True while the set does not adopt a matching Machine that has no owner.
	ConditionAdoptionSkipped = "AdoptionSkipped"

	// ConditionFrozen is True while Machinist creates no machines for safety.
	ConditionFrozen = "Frozen"

	// ConditionHibernated is True while spec.hibernated is set and all machines are stopped, and False while machines are
	// being stopped or started. The condition is missing if no machine is stopped because of a hibernation.
	ConditionHibernated = "Hibernated"

	// ConditionMachinesReady is True while all machines are Ready.
	ConditionMachinesReady = "MachinesReady"

	// ConditionBalanced is False while the machines of a set or deployment with a placement are not distributed within
	// maxSkew, or while machines have no place. The condition is missing on objects without a placement.
	ConditionBalanced = "Balanced"

	// ConditionScalableFromZero is False while an autoscaler cannot scale the node group up from zero machines,
	// because the capacity of its Nodes is unknown. The condition is missing on objects that are not node groups. The
	// condition is also missing on a node group whose capacity has been known since its creation.
	ConditionScalableFromZero = "ScalableFromZero"
)

// Reasons of Hibernated.
const (
	// ReasonHibernated surfaces when all machines are stopped.
	ReasonHibernated = "Hibernated"

	// ReasonHibernating surfaces when machines are being stopped. The message names the number of these machines.
	ReasonHibernating = "Hibernating"

	// ReasonWakingUp surfaces when machines are being started after the hibernation.
	ReasonWakingUp = "WakingUp"
)

// Reasons of ScalableFromZero, in addition to ClassNotFound.
const (
	// ReasonCapacityKnown surfaces when the annotations of the node group contain the CPUs and the memory of its Nodes.
	ReasonCapacityKnown = "CapacityKnown"

	// ReasonCapacityUnknown surfaces when neither the class nor its provider specifies CPUs and memory.
	ReasonCapacityUnknown = "CapacityUnknown"

	// ReasonNoClass surfaces when the template has an inline providerSpec. Providers determine the capacity only for a
	// MachineClass.
	ReasonNoClass = "NoClass"

	// ReasonMalformedCapacity surfaces when an autoscaler cannot read a capacity annotation of a user.
	ReasonMalformedCapacity = "MalformedCapacity"
)

// Reasons of Balanced, in addition to InsufficientResources and ClassNotFound.
const (
	// ReasonWithinMaxSkew surfaces when the machines are distributed within maxSkew.
	ReasonWithinMaxSkew = "WithinMaxSkew"

	// ReasonBoundsReached surfaces when machines are missing because each domain with a weight above 0 has maxReplicas.
	ReasonBoundsReached = "BoundsReached"

	// ReasonSkewExceeded surfaces when the domains have capacity, but their machines are not distributed within maxSkew,
	// for example after a domain was added or after capacity returned.
	ReasonSkewExceeded = "SkewExceeded"
)

// Reasons of CapacityAvailable, in addition to InsufficientResources.
const (
	// ReasonCapacityFound surfaces when the cloud has created an instance of the class again.
	ReasonCapacityFound = "CapacityFound"
)

// Reasons of ScalingUp and ScalingDown.
const (
	// ReasonScalingUp surfaces when machines are being created.
	ReasonScalingUp = "ScalingUp"

	// ReasonScalingDown surfaces when machines are being deleted.
	ReasonScalingDown = "ScalingDown"

	// ReasonAtDesiredReplicas surfaces when the number of machines equals replicas. The conditions ScalingUp and
	// ScalingDown have this reason while their status is False.
	ReasonAtDesiredReplicas = "AtDesiredReplicas"

	// ReasonBackingOff surfaces when the replacement of failed machines waits because earlier replacements failed too.
	ReasonBackingOff = "BackingOff"
)

// Reasons of ReplicaFailure, in addition to InvalidConfiguration.
const (
	// ReasonMachineCreateFailed surfaces when the API server refused a Machine.
	ReasonMachineCreateFailed = "MachineCreateFailed"

	// ReasonMachineDeleteFailed surfaces when the API server refused the deletion of a Machine.
	ReasonMachineDeleteFailed = "MachineDeleteFailed"

	// ReasonReplacementsFailing surfaces when three machines in a row were replaced for the same reason, because their
	// instances never became Ready Nodes. The set then replaces only one machine per hour, until a machine becomes
	// Ready or the template changes.
	ReasonReplacementsFailing = "ReplacementsFailing"

	// ReasonTooManyMachines surfaces when the number of machines, including those that are being deleted, has reached
	// the hard limit.
	ReasonTooManyMachines = "TooManyMachines"

	// ReasonInvalidSelector surfaces when the selector is empty, cannot be parsed or does not match the template.
	ReasonInvalidSelector = "InvalidSelector"

	// ReasonNoFailure surfaces when the failure has ended.
	ReasonNoFailure = "NoFailure"
)

// Reasons of AdoptionSkipped.
const (
	// ReasonOtherClass surfaces when a Machine could be adopted, but its class is not an option of the set's placement.
	ReasonOtherClass = "OtherClass"

	// ReasonEnoughReplicas surfaces when a Machine could be adopted, but the set already has enough machines.
	ReasonEnoughReplicas = "EnoughReplicas"

	// ReasonSetDeleting surfaces when a Machine could be adopted, but the set is being deleted.
	ReasonSetDeleting = "SetDeleting"

	// ReasonNothingToAdopt surfaces when no Machine is left that could be adopted.
	ReasonNothingToAdopt = "NothingToAdopt"
)

// Reasons of Frozen, a condition of sets and deployments. The condition RemediationAllowed also uses these reasons.
const (
	// ReasonOvershoot surfaces when there are more machines than allowed.
	ReasonOvershoot = "Overshoot"

	// ReasonControlPlaneUnreachable surfaces when the control cluster or the target cluster cannot be reached.
	ReasonControlPlaneUnreachable = "ControlPlaneUnreachable"

	// ReasonTargetCredentialsRefused surfaces when the target cluster does not accept the credentials of the process
	// (401), or forbids a read that the process needs (403). The conditions Deleting and Ready also use this reason.
	ReasonTargetCredentialsRefused = "TargetCredentialsRefused"

	// ReasonControlCredentialsRefused surfaces when the control cluster does not accept the credentials of the
	// process (401), or forbids a read that the process needs (403). The process then cannot write conditions.
	// Instead, the process reports the reason in its metrics, on /readyz and in its log.
	ReasonControlCredentialsRefused = "ControlCredentialsRefused"

	// ReasonMeltdown surfaces when too many nodes became unhealthy at once, in the whole fleet, in a zone or in a
	// namespace.
	ReasonMeltdown = "Meltdown"

	// ReasonFrozen surfaces when the owner of the machines is frozen. The condition RemediationAllowed also uses this
	// reason, and so does the condition Progressing of a MachineDeployment.
	ReasonFrozen = "Frozen"

	// ReasonFrozenByLabel surfaces when a user set the label machinist.dev/freeze.
	ReasonFrozenByLabel = "FrozenByLabel"

	// ReasonThawed surfaces when the freeze has ended.
	ReasonThawed = "Thawed"
)

// Reasons of MachinesReady.
const (
	// ReasonAllMachinesReady surfaces when all machines are Ready.
	ReasonAllMachinesReady = "AllMachinesReady"

	// ReasonMachinesNotReady surfaces when some machines are not Ready. The message names the first of these machines.
	ReasonMachinesNotReady = "MachinesNotReady"
)

// Conditions of a MachineDeployment, in addition to Paused and the conditions of a set.
const (
	// ConditionAvailable is True while at least replicas − maxUnavailable machines are available.
	ConditionAvailable = "Available"

	// ConditionProgressing is True while a rollout advances or is complete.
	ConditionProgressing = "Progressing"

	// ConditionRollingOut is True while some machines are not of the newest revision, except those that partition keeps.
	// The message of the condition describes the current step of the rollout, or what the rollout waits for.
	ConditionRollingOut = "RollingOut"

	// ConditionReconciling is True while the deployment is neither Ready nor Stalled, because Machinist is still
	// changing it to its desired state. Reconciling has the same reason and message as Ready.
	ConditionReconciling = "Reconciling"

	// ConditionStalled is True while the deployment is not Ready and Progressing is False. The deployment makes no
	// progress until something is changed. The condition Stalled has the same reason and message as the condition
	// Ready.
	ConditionStalled = "Stalled"
)

// Reasons of Ready on a MachineDeployment, in addition to the reasons of Progressing, RollingOut, ScalingUp and
// ScalingDown. Ready is True when the deployment has exactly the desired number of machines, and all of them are
// available and of the newest revision. With the strategy InPlace, the machines must also be up to date.
const (
	// ReasonMachinesNotAvailable surfaces when all machines exist and are of the newest revision, but some machines
	// are not available.
	ReasonMachinesNotAvailable = "MachinesNotAvailable"
)

// Reasons of the condition Available, with the names from apps/v1.
const (
	// ReasonMinimumReplicasAvailable surfaces when enough machines are available.
	ReasonMinimumReplicasAvailable = "MinimumReplicasAvailable"

	// ReasonMinimumReplicasUnavailable surfaces when too few machines are available.
	ReasonMinimumReplicasUnavailable = "MinimumReplicasUnavailable"
)

// Reasons of Progressing. Names are the same as in apps/v1 if apps/v1 has the reason.
const (
	// ReasonNewMachineSetCreated surfaces when a MachineSet was created for the newest revision.
	ReasonNewMachineSetCreated = "NewMachineSetCreated"

	// ReasonFoundNewMachineSet surfaces when an existing MachineSet was found for the newest revision.
	ReasonFoundNewMachineSet = "FoundNewMachineSet"

	// ReasonMachineSetUpdated surfaces when machines of the newest revision were added or became available.
	ReasonMachineSetUpdated = "MachineSetUpdated"

	// ReasonNewMachineSetAvailable surfaces when the rollout is complete.
	ReasonNewMachineSetAvailable = "NewMachineSetAvailable"

	// ReasonMachineSetCreateError surfaces when the MachineSet of the newest revision cannot be created.
	ReasonMachineSetCreateError = "MachineSetCreateError"

	// ReasonProgressDeadlineExceeded surfaces when a rollout made no progress for spec.progressDeadline.
	ReasonProgressDeadlineExceeded = "ProgressDeadlineExceeded"

	// ReasonDeploymentPaused surfaces when spec.paused stops rollouts. The condition Paused also uses this reason.
	ReasonDeploymentPaused = "DeploymentPaused"

	// ReasonDeploymentResumed surfaces when spec.paused was set to false again.
	ReasonDeploymentResumed = "DeploymentResumed"

	// ReasonRevisionFailing surfaces when three consecutive machines of the newest revision failed to launch, or were
	// marked by health checks before they became Ready. Machinist then creates machines of this revision only while
	// there are fewer machines than replicas.
	ReasonRevisionFailing = "RevisionFailing"
)

// Reasons of RollingOut.
const (
	// ReasonRollingOut surfaces when machines of an old revision are being replaced.
	ReasonRollingOut = "RollingOut"

	// ReasonRolloutComplete surfaces when all machines are of the newest revision.
	ReasonRolloutComplete = "RolloutComplete"

	// ReasonRolloutBlocked surfaces when the rollout cannot take its next step. The message names what the rollout
	// waits for.
	ReasonRolloutBlocked = "RolloutBlocked"

	// ReasonWaitingForDeletion surfaces when a rollout with the strategy OnDelete waits for a user to delete old
	// machines.
	ReasonWaitingForDeletion = "WaitingForDeletion"

	// ReasonWaitingForSelection surfaces when a rollout with the strategy InPlace and the orchestration Manual waits
	// for a user to select machines.
	ReasonWaitingForSelection = "WaitingForSelection"

	// ReasonWaitingForDisruptionBudget surfaces when MachineDisruptionBudgets or the annotation
	// machinist.dev/do-not-disrupt currently protect all machines of old revisions.
	ReasonWaitingForDisruptionBudget = "WaitingForDisruptionBudget"

	// ReasonVersionSkew surfaces when the target cluster's API server does not support the kubelet version of the
	// rollout. The version is newer than the API server, or more than three minor versions older.
	ReasonVersionSkew = "VersionSkew"

	// ReasonVersionStepMissing surfaces when the rollout needs a version that spec.versionSteps does not contain, or when
	// the strategy InPlace would change the version of a machine by more than one minor version.
	ReasonVersionStepMissing = "VersionStepMissing"

	// ReasonPartitionReached surfaces when only the machines that spec.strategy.rollingUpdate.partition keeps on old
	// revisions are left. The rollout continues after partition is lowered.
	ReasonPartitionReached = "PartitionReached"

	// ReasonWaitingForPromotion surfaces when the first machines of the newest revision exist, and
	// spec.strategy.rollingUpdate.pauseAfter stops the rollout. The rollout continues after the duration of pauseAfter,
	// or when the annotation machinist.dev/promote-revision names the revision.
	ReasonWaitingForPromotion = "WaitingForPromotion"
)

// Conditions of a MachineHealthCheck.
const (
	// ConditionRemediationAllowed is True while unhealthy machines are marked for remediation. Meltdown,
	// ControlPlaneUnreachable and Frozen are also reasons of this condition.
	ConditionRemediationAllowed = "RemediationAllowed"

	// ConditionRemediationTemplateReady is False while remediations cannot be created from spec.remediation.templateRef.
	// Checks without templateRef do not have this condition.
	ConditionRemediationTemplateReady = "RemediationTemplateReady"
)

// Reasons of RemediationTemplateReady, in addition to NoTargetCluster.
const (
	// ReasonTemplateReady surfaces when remediations can be created from the template.
	ReasonTemplateReady = "TemplateReady"

	// ReasonKindNotPermitted surfaces when the manager's flag --remediation-kinds does not contain the kind of the
	// remediation.
	ReasonKindNotPermitted = "KindNotPermitted"

	// ReasonKindNotInstalled surfaces when the target cluster does not know the kind of the template or of the
	// remediation.
	ReasonKindNotInstalled = "KindNotInstalled"

	// ReasonTemplateNotFound surfaces when the template does not exist.
	ReasonTemplateNotFound = "TemplateNotFound"

	// ReasonTemplateInvalid surfaces when the template has no spec.template.spec, or when the target cluster refuses the
	// remediation that was created from the template.
	ReasonTemplateInvalid = "TemplateInvalid"

	// ReasonRemediationForbidden surfaces when the manager may not read the template, or may not read or write the
	// remediations.
	ReasonRemediationForbidden = "RemediationForbidden"

	// ReasonRemediationNameTaken surfaces when another client created a remediation with the name of a Node. Machinist
	// does not touch that remediation.
	ReasonRemediationNameTaken = "RemediationNameTaken"
)

// Reasons of RemediationAllowed.
const (
	// ReasonRemediationAllowed surfaces when nothing prevents remediation.
	ReasonRemediationAllowed = "RemediationAllowed"

	// ReasonTooManyUnhealthy surfaces when more of the selected machines are unhealthy than spec.unhealthyRange or
	// spec.maxUnhealthy allows.
	ReasonTooManyUnhealthy = "TooManyUnhealthy"
	// ReasonTooFewUnhealthy surfaces when some of the selected machines are unhealthy, but fewer than
	// spec.unhealthyRange requires.
	ReasonTooFewUnhealthy = "TooFewUnhealthy"
)

// Conditions of a MachineDisruptionBudget.
const (
	// ConditionValid is False while the budget is invalid. An invalid budget allows no disruption.
	ConditionValid = "Valid"
)

// Reasons of Valid. The condition Valid can also have the reason InvalidSelector.
const (
	// ReasonBudgetUnderstood surfaces when the budget is valid.
	ReasonBudgetUnderstood = "BudgetUnderstood"

	// ReasonInvalidWindow surfaces when a window has an invalid schedule, time zone or duration.
	ReasonInvalidWindow = "InvalidWindow"

	// ReasonInvalidMaxDisrupted surfaces when maxDisrupted is neither a number nor a percentage.
	ReasonInvalidMaxDisrupted = "InvalidMaxDisrupted"
)
