package v1beta1

// Conditions of a Machine.
const (
	// ConditionLaunched is True when the instance exists and the providerID of the instance is recorded.
	ConditionLaunched = "Launched"

	// ConditionRegistered is True when the machine has a Node, and the Node has the labels, annotations and taints of
	// spec.node.
	ConditionRegistered = "Registered"

	// ConditionNodeHealthy summarizes the conditions that the Node reports. Health checks evaluate this condition.
	ConditionNodeHealthy = "NodeHealthy"

	// ConditionUpToDate is True when the instance matches the spec.
	ConditionUpToDate = "UpToDate"

	// ConditionDrained shows the progress of the drain. The drain starts at the first transition of this condition.
	ConditionDrained = "Drained"

	// ConditionDrainExtended is True when the target cluster was unreachable during a drain. The duration of such
	// outages does not count towards the drain's deadline. Outages before the transition time of the condition are
	// already subtracted.
	ConditionDrainExtended = "DrainExtended"

	// ConditionVolumesDetached shows whether volumes are detached after the drain.
	ConditionVolumesDetached = "VolumesDetached"

	// ConditionReady summarizes the other conditions. While Ready is False, its reason and message are those of the
	// condition that prevents readiness. MachineClasses and MachineDeployments also have a condition Ready.
	ConditionReady = "Ready"

	// ConditionDeleting is True while the machine is being deleted. The reason of the condition is the step that the
	// deletion waits for.
	ConditionDeleting = "Deleting"

	// ConditionPaused is True while an annotation prevents all changes of the object. On a MachineDeployment, the
	// condition reports whether spec.paused is set.
	ConditionPaused = "Paused"

	// ConditionPreserved is True while the machine is preserved for inspection. The condition is False when a user
	// requested the preservation, but Machinist cannot preserve the machine.
	ConditionPreserved = "Preserved"

	// ConditionInterruptionNotice is True while the cloud or a termination handler announces that the cloud will soon
	// reclaim the instance. The condition is False after the announcement was withdrawn.
	ConditionInterruptionNotice = "InterruptionNotice"

	// ConditionRemediationRequested is True when the machine must be replaced because of its health. Only the manager
	// sets the condition. The reason names the policy. The message contains the UID of the Node that was evaluated.
	ConditionRemediationRequested = "RemediationRequested"

	// ConditionCertificateApproved is False while a certificate request of the machine's kubelet waits for the
	// approval of an administrator. While no such request waits, the condition is missing.
	ConditionCertificateApproved = "CertificateApproved"

	// ConditionOwned is False while the machine has a request that only a MachineSet carries out, but no MachineSet owns
	// the machine. While the machine has no such request, the condition is missing.
	ConditionOwned = "Owned"

	// ConditionPowerStateReached is True when the instance has the state in spec.powerState. While powerState is not set,
	// the condition is missing.
	ConditionPowerStateReached = "PowerStateReached"

	// ConditionRebooted is False while a requested reboot waits or is in progress, and after a reboot that failed. The
	// condition is True when the Node is Ready again. Without the annotation machinist.dev/reboot, the condition is
	// missing.
	ConditionRebooted = "Rebooted"
)

// Reasons of Rebooted, in addition to Draining, ShuttingDown, Starting, Updating, WaitingForNode, Preserved, Stopped,
// PowerNotSupported, PowerError, InsufficientResources, CredentialsRefused and ProviderUnavailable.
const (
	// ReasonRebooted surfaces when the Node is Ready again after a reboot.
	ReasonRebooted = "Rebooted"

	// ReasonBooting surfaces when the instance was started again and its Node is not Ready yet.
	ReasonBooting = "Booting"

	// ReasonRebootFailed surfaces when the Node did not become Ready within timeouts.creation after the instance was
	// started again.
	ReasonRebootFailed = "RebootFailed"

	// ReasonRebootCancelled surfaces when a reboot ended before the instance was started again. The message says why.
	ReasonRebootCancelled = "RebootCancelled"
)

// Reasons of PowerStateReached, in addition to Draining, Updating, WaitingForNode, InsufficientResources,
// CredentialsRefused and ProviderUnavailable.
const (
	// ReasonStopped surfaces when Machinist has stopped the instance, and the cloud has confirmed this. The conditions
	// Ready and NodeHealthy then have this reason too.
	ReasonStopped = "Stopped"

	// ReasonRunning surfaces when the instance runs.
	ReasonRunning = "Running"

	// ReasonShuttingDown surfaces when the Node is drained and the instance is being stopped.
	ReasonShuttingDown = "ShuttingDown"

	// ReasonStarting surfaces when the instance is being started.
	ReasonStarting = "Starting"

	// ReasonPowerNotSupported surfaces when the provider cannot stop and start the instance. The instance stays as it
	// is. Machinist tries again when the spec of the Machine changes.
	ReasonPowerNotSupported = "PowerNotSupported"

	// ReasonPowerError surfaces when the provider failed to stop or to start the instance. Machinist tries again.
	ReasonPowerError = "PowerError"
)

// Reasons of Owned.
const (
	// ReasonNoMachineSet surfaces when a replacement or the deletion of the machine was requested, but no MachineSet
	// owns the machine. The message names the annotation or the condition that contains the request.
	ReasonNoMachineSet = "NoMachineSet"
)

// Reasons of CertificateApproved.
const (
	// ReasonClientCertificateNotApproved surfaces when Machinist does not approve the request for a client certificate.
	// The node needs this certificate to join the cluster and to remain in it.
	ReasonClientCertificateNotApproved = "ClientCertificateNotApproved"

	// ReasonServingCertificateNotApproved surfaces when Machinist does not approve the request for a serving
	// certificate. `kubectl logs` and `kubectl exec` need this certificate.
	ReasonServingCertificateNotApproved = "ServingCertificateNotApproved"
)

// Reasons of Launched.
const (
	// ReasonInstanceLaunched surfaces when the instance exists.
	ReasonInstanceLaunched = "InstanceLaunched"

	// ReasonInstanceAdopted surfaces when an existing instance was adopted.
	ReasonInstanceAdopted = "InstanceAdopted"

	// ReasonInvalidConfiguration surfaces when the spec, the class, the user data or the provider spec is refused. If
	// the provider refused the configuration, lastOperation contains the error code and the time of the next attempt.
	// Otherwise, Machinist tries again only when one of these objects changes. MachineSets report this reason in
	// ReplicaFailure, and MachineHealthChecks report it in RemediationAllowed.
	ReasonInvalidConfiguration = "InvalidConfiguration"

	// ReasonUnknownTypeVersion surfaces when the label machinist.dev/type-version has a value that this version of
	// Machinist does not know.
	ReasonUnknownTypeVersion = "UnknownTypeVersion"

	// ReasonClassNotFound surfaces when the MachineClass does not exist.
	ReasonClassNotFound = "ClassNotFound"

	// ReasonClassDeleting surfaces when the MachineClass was deleted before Machinist requested an instance for this
	// machine. The class creates no more instances. A MachineClass that is being deleted also reports this reason in
	// Ready.
	ReasonClassDeleting = "ClassDeleting"

	// ReasonCredentialsNotFound surfaces when the Secret with the cloud credentials does not exist or lacks a key.
	// Machines report this reason in Launched and Deleting, and MachineClasses report it in Ready.
	ReasonCredentialsNotFound = "CredentialsNotFound"

	// ReasonCredentialsRefused surfaces when the cloud does not accept the credentials, or they lack a permission that
	// Machinist needs. Machines report this reason in Launched and Deleting, and MachineClasses report it in Ready.
	ReasonCredentialsRefused = "CredentialsRefused"

	// ReasonSecretNotLabelled surfaces when the label machinist.dev/secret-use of a Secret does not permit its use for
	// credentials or user data. Machines report this reason in Launched and Deleting, and MachineClasses report it in
	// Ready.
	ReasonSecretNotLabelled = "SecretNotLabelled"

	// ReasonUserDataNotFound surfaces when the Secret with the bootstrap template does not exist or lacks the key.
	// Machines report this reason in Launched, and MachineClasses report it in Ready.
	ReasonUserDataNotFound = "UserDataNotFound"

	// ReasonInvalidUserData surfaces when the bootstrap template cannot be read because it is corrupt gzip or UTF-16
	// data. MachineClasses report this reason in Ready. Machines report InvalidConfiguration instead.
	ReasonInvalidUserData = "InvalidUserData"

	// ReasonInsufficientResources surfaces when the cloud has no capacity or quota. Machinist tries again.
	ReasonInsufficientResources = "InsufficientResources"

	// ReasonCreateFailed surfaces when the creation failed for another reason. Machinist tries again.
	ReasonCreateFailed = "CreateFailed"

	// ReasonCreateTimeout surfaces when there is no instance within timeouts.creation.
	ReasonCreateTimeout = "CreateTimeout"

	// ReasonProvisioning surfaces when the cloud has accepted the creation but has not returned an instance yet.
	ReasonProvisioning = "Provisioning"

	// ReasonProviderUnavailable surfaces when the API of the cloud cannot be reached, or when no process serves the
	// provider.
	ReasonProviderUnavailable = "ProviderUnavailable"

	// ReasonDuplicateProviderID surfaces when an older Machine has the same providerID.
	ReasonDuplicateProviderID = "DuplicateProviderID"

	// ReasonAdoptionForbidden surfaces when a Machine is created with a providerID, but its class does not allow
	// adoption.
	ReasonAdoptionForbidden = "AdoptionForbidden"

	// ReasonAdoptionRefused surfaces when the instance to adopt does not exist, is being deleted, or has the tags of
	// another machine or installation.
	ReasonAdoptionRefused = "AdoptionRefused"

	// ReasonAdoptionUnsupported surfaces when the provider cannot adopt existing instances.
	ReasonAdoptionUnsupported = "AdoptionUnsupported"

	// ReasonInstanceVanished surfaces when the provider reports that the instance is gone.
	ReasonInstanceVanished = "InstanceVanished"
)

// Reasons of Registered.
const (
	// ReasonNodeRegistered surfaces when the machine has a Node.
	ReasonNodeRegistered = "NodeRegistered"

	// ReasonWaitingForNode surfaces when no Node has appeared yet.
	ReasonWaitingForNode = "WaitingForNode"

	// ReasonWaitingForStartupTaints surfaces when startup taints are still on the Node.
	ReasonWaitingForStartupTaints = "WaitingForStartupTaints"

	// ReasonNodeTemplateContested surfaces when another client repeatedly changes a label, an annotation or a taint
	// that Machinist set on the Node. Machinist then keeps the value of the other client. The condition Registered is
	// still True.
	ReasonNodeTemplateContested = "NodeTemplateContested"

	// ReasonNodeConflict surfaces when two Machines claim the same Node, or when the Node already belongs to another
	// Machine. The condition Deleting uses this reason when two Nodes with active kubelets have the machine's provider
	// ID.
	ReasonNodeConflict = "NodeConflict"

	// ReasonJoinClusterTimeout surfaces when the machine is not Running within timeouts.creation.
	ReasonJoinClusterTimeout = "JoinClusterTimeout"

	// ReasonNoTargetCluster surfaces when there is no target cluster for the machine to join.
	ReasonNoTargetCluster = "NoTargetCluster"
)

// Reasons of NodeHealthy.
const (
	// ReasonNodeReady surfaces when the Node is Ready.
	ReasonNodeReady = "NodeReady"

	// ReasonWaitingForReadinessGates surfaces when the Node is Ready, but a condition that spec.node.readinessGates
	// names is not True. The condition NodeHealthy is still True, and the condition Ready is False.
	ReasonWaitingForReadinessGates = "WaitingForReadinessGates"

	// ReasonNodeNotReady surfaces when the Node reports that it is not Ready.
	ReasonNodeNotReady = "NodeNotReady"

	// ReasonNodeUnresponsive surfaces when the Ready condition of the Node is Unknown, because its kubelet does not
	// report its status.
	ReasonNodeUnresponsive = "NodeUnresponsive"

	// ReasonInstanceStopped surfaces when the Node is not Ready because the instance is stopped, although Machinist has
	// not stopped it. Without a target cluster, only the condition Ready has this reason.
	ReasonInstanceStopped = "InstanceStopped"

	// ReasonNodeConditionsFailed surfaces when the Node is Ready and another of its conditions reports a problem.
	ReasonNodeConditionsFailed = "NodeConditionsFailed"

	// ReasonNodeGone surfaces when the Node was deleted. The condition Registered also uses this reason.
	ReasonNodeGone = "NodeGone"

	// ReasonTargetUnreachable surfaces when the target cluster cannot be reached. The conditions Registered, Drained,
	// DrainExtended and Deleting also use this reason.
	ReasonTargetUnreachable = "TargetUnreachable"
)

// Reasons of UpToDate. The condition is True only if its reason is UpToDate.
const (
	// ReasonUpToDate surfaces when the instance matches the spec.
	ReasonUpToDate = "UpToDate"

	// ReasonUpdatePending surfaces when the instance must be changed, but the change has not begun yet.
	ReasonUpdatePending = "UpdatePending"

	// ReasonUpdating surfaces when the instance is being changed in place.
	ReasonUpdating = "Updating"

	// ReasonReplacing surfaces when the instance is being replaced under the same Machine. The conditions Launched and
	// Registered also use this reason.
	ReasonReplacing = "Replacing"

	// ReasonWaitingForAgent surfaces when the agent on the node has not yet answered an update request.
	ReasonWaitingForAgent = "WaitingForAgent"

	// ReasonUnsupportedChange surfaces when the provider can neither change nor replace the instance. The old instance
	// continues to run.
	ReasonUnsupportedChange = "UnsupportedChange"

	// ReasonUpdateError surfaces when a change failed. The provider tries again automatically. An agent on the node
	// tries again only when a user requests another attempt.
	ReasonUpdateError = "UpdateError"

	// ReasonUpdateTimeout surfaces when an update in place took longer than timeouts.update.
	ReasonUpdateTimeout = "UpdateTimeout"
)

// Reasons of Drained and VolumesDetached.
const (
	// ReasonDrained surfaces when no pod is left to evict.
	ReasonDrained = "Drained"

	// ReasonDraining surfaces when pods are being evicted. The condition Deleting also uses this reason.
	ReasonDraining = "Draining"

	// ReasonBlockedByDisruptionBudget surfaces when a PodDisruptionBudget refuses evictions. The message names the
	// budget.
	ReasonBlockedByDisruptionBudget = "BlockedByDisruptionBudget"

	// ReasonWaitingForCompletion surfaces when a rule of spec.drain or the label cluster.x-k8s.io/drain prevents the
	// eviction of pods until they have ended, and no other pod is being evicted. The message names the pods and the
	// rules.
	ReasonWaitingForCompletion = "WaitingForCompletion"

	// ReasonDrainForced surfaces when the deadline is near, and Machinist deletes pods instead of evicting them.
	ReasonDrainForced = "DrainForced"

	// ReasonDrainError surfaces when pods cannot be listed, evicted or deleted. Machinist tries again.
	ReasonDrainError = "DrainError"

	// ReasonSkipped surfaces when the step was skipped because an annotation requests this, because there is no Node,
	// or because the node is unreachable or not Ready. The conditions Drained and VolumesDetached use this reason.
	ReasonSkipped = "Skipped"

	// ReasonVolumesDetached surfaces when no relevant volume is attached to the node.
	ReasonVolumesDetached = "VolumesDetached"

	// ReasonWaitingForVolumeDetach surfaces when volumes are still attached. The condition Deleting also uses this
	// reason.
	ReasonWaitingForVolumeDetach = "WaitingForVolumeDetach"

	// ReasonNodeOutOfService surfaces when the instance of an unresponsive or not Ready node is gone and volumes are
	// still attached to the node. Kubernetes then detaches the volumes by force. Only the condition VolumesDetached
	// uses this reason.
	ReasonNodeOutOfService = "NodeOutOfService"

	// ReasonVolumeDetachTimeout surfaces when volumes are still attached after timeouts.volumeDetach. The deletion or
	// update continues anyway.
	ReasonVolumeDetachTimeout = "VolumeDetachTimeout"
)

// Reasons of Deleting, in addition to Draining, WaitingForVolumeDetach, CredentialsNotFound, TargetUnreachable and
// PausedByAnnotation.
const (
	// ReasonDeletionStarted surfaces when the deletion has begun and does not wait for any step. A MachineClass has
	// this reason until Machinist knows whether the Machines of the class are being deleted too. No instance is created
	// from the class during these seconds.
	ReasonDeletionStarted = "DeletionStarted"

	// ReasonWaitingForPreDrainHook surfaces when spec.lifecycleHooks.preDrain is not empty.
	ReasonWaitingForPreDrainHook = "WaitingForPreDrainHook"

	// ReasonWaitingForPreTerminateHook surfaces when spec.lifecycleHooks.preTerminate is not empty.
	ReasonWaitingForPreTerminateHook = "WaitingForPreTerminateHook"

	// ReasonInstanceTerminating surfaces when the provider is deleting the instance.
	ReasonInstanceTerminating = "InstanceTerminating"

	// ReasonCreateSettling surfaces when the cloud shows no instance, but an instance of an earlier request may still
	// appear.
	ReasonCreateSettling = "CreateSettling"

	// ReasonDeleteError surfaces when the provider failed to delete the instance. Machinist tries again.
	ReasonDeleteError = "DeleteError"

	// ReasonInstanceDeleted surfaces when the instance is gone, but the Node, the bootstrap token or the finalizer
	// remains.
	ReasonInstanceDeleted = "InstanceDeleted"
)

// Reasons of Paused.
const (
	// ReasonPausedByAnnotation surfaces when the object has the annotation machinist.dev/paused or
	// cluster.x-k8s.io/paused.
	ReasonPausedByAnnotation = "PausedByAnnotation"

	// ReasonNotPaused surfaces when the object is no longer paused.
	ReasonNotPaused = "NotPaused"
)

// Reasons of Preserved, in addition to InvalidConfiguration.
const (
	// ReasonPreserved surfaces when the machine is preserved. A preserved machine is cordoned, kept, and no longer
	// belongs to a set. The message contains the time at which the preservation ends.
	ReasonPreserved = "Preserved"

	// ReasonTooLate surfaces when preservation was requested for a machine that is already being deleted.
	ReasonTooLate = "TooLate"

	// ReasonTooManyPreserved surfaces when --preserve-limit prevents the preservation of a failed machine with
	// machinist.dev/preserve: when-failed. Its MachineDeployment or standalone MachineSet already has as many preserved
	// machines as this flag allows. The machine is replaced as usual.
	ReasonTooManyPreserved = "TooManyPreserved"
)

// Reasons of InterruptionNotice. While InterruptionNotice is True, Ready can have the same reason.
const (
	// ReasonPreemptionNotice surfaces when the cloud announced that the cloud will reclaim a spot or preemptible
	// instance. The message names the source of the announcement. The time of the interruption is in
	// status.interruptionTime.
	ReasonPreemptionNotice = "PreemptionNotice"

	// ReasonTerminationNotice surfaces when the cloud or a termination handler announced the termination of the
	// instance for another reason, such as a shrinking scaling group or the retirement of a host.
	ReasonTerminationNotice = "TerminationNotice"

	// ReasonInterruptionWithdrawn surfaces when the announcement was withdrawn before the instance was gone.
	ReasonInterruptionWithdrawn = "InterruptionWithdrawn"
)

// Reasons of RemediationRequested. Each reason names the policy that requests the remediation.
const (
	// ReasonMachineHealthCheck surfaces when a MachineHealthCheck found the machine unhealthy. The message names the
	// check.
	ReasonMachineHealthCheck = "MachineHealthCheck"

	// ReasonBuiltInPolicy surfaces when the manager's built-in policy found the machine unhealthy.
	ReasonBuiltInPolicy = "BuiltInPolicy"

	// ReasonRebootRequested surfaces when a health check with remediation.type Reboot, or the built-in policy with
	// --health-remediation=Reboot, has found the machine unhealthy. The instance is rebooted first. The message names the
	// policy.
	ReasonRebootRequested = "RebootRequested"

	// ReasonReplaceAfterReboot surfaces when the machine is replaced because reboots did not heal it, or because its
	// instance cannot be rebooted. The message says which.
	ReasonReplaceAfterReboot = "ReplaceAfterReboot"

	// ReasonExternalRemediation surfaces when a MachineHealthCheck with the remediation type External found the machine
	// unhealthy. A remediator outside Machinist must handle the machine. The message names the check.
	ReasonExternalRemediation = "ExternalRemediation"

	// ReasonExternalRemediationFailed surfaces when an external remediation failed or exceeded its timeout, or when the
	// machine has no Node to remediate, and spec.remediation.onTimeout of the MachineHealthCheck is None. The machine is
	// not replaced. The message names the remediation.
	ReasonExternalRemediationFailed = "ExternalRemediationFailed"

	// ReasonReplaceAfterRemediation surfaces when an external remediation failed or exceeded its timeout, or when the
	// machine has no Node to remediate, and spec.remediation.onTimeout of the MachineHealthCheck is Replace. The message
	// names the remediation.
	ReasonReplaceAfterRemediation = "ReplaceAfterRemediation"

	// ReasonRemediateAnnotation surfaces when a user requested the remediation with the annotation
	// machinist.dev/remediate.
	ReasonRemediateAnnotation = "RemediateAnnotation"

	// ReasonRetriesExhausted surfaces when the number of consecutive replacements has reached the limit of the
	// MachineHealthCheck. RemediationRequested is then False, and a failed machine is not replaced either. The
	// condition RemediationAllowed also uses this reason.
	ReasonRetriesExhausted = "RetriesExhausted"
)

// Reasons of Ready while its status is True or Unknown. While Ready is False, the condition Ready has the reason of
// the condition that prevents readiness.
const (
	// ReasonMachineReady surfaces when nothing prevents readiness.
	ReasonMachineReady = "MachineReady"

	// ReasonPending surfaces when no work on the machine has begun yet.
	ReasonPending = "Pending"
)
