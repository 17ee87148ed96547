package v1beta1

// Conditions of a Machine.
const (
	// ConditionLaunched is True when the instance exists and its providerID is recorded.
	ConditionLaunched = "Launched"

	// ConditionRegistered is True when a Node belongs to the machine and carries what spec.node asks for.
	ConditionRegistered = "Registered"

	// ConditionNodeHealthy tells what the Node says of itself. It does not judge.
	ConditionNodeHealthy = "NodeHealthy"

	// ConditionUpToDate is True when the instance is what spec asks for.
	ConditionUpToDate = "UpToDate"

	// ConditionDrained follows the drain. Its first transition is the start of the drain.
	ConditionDrained = "Drained"

	// ConditionDrainExtended is True when the target cluster was unreachable during a drain. The time does not count;
	// the transition is until when it was left out.
	ConditionDrainExtended = "DrainExtended"

	// ConditionVolumesDetached follows the detachment of volumes after the drain.
	ConditionVolumesDetached = "VolumesDetached"

	// ConditionReady sums the others up. A MachineClass and a MachineDeployment have it too, see there. While it is
	// False, its reason and message are those of the condition that is in the way.
	ConditionReady = "Ready"

	// ConditionDeleting is True while the machine is being deleted; its reason is the step that is waited for.
	ConditionDeleting = "Deleting"

	// ConditionPaused is True while an annotation stops everything that would change the object. A MachineDeployment
	// has it too, for spec.paused.
	ConditionPaused = "Paused"

	// ConditionPreserved is True while the machine is preserved for inspection. It is False when that was asked for and
	// cannot be done.
	ConditionPreserved = "Preserved"

	// ConditionInterruptionNotice is True while the cloud, or something that acts for it, has announced that the
	// instance is about to be reclaimed. It is False when that was withdrawn.
	ConditionInterruptionNotice = "InterruptionNotice"

	// ConditionRemediationRequested is True when the machine must be replaced on grounds of its health. It alone
	// belongs to the manager. The reason is the policy; the message names the UID of the Node that was judged.
	ConditionRemediationRequested = "RemediationRequested"

	// ConditionCertificateApproved is False while a certificate request of the machine's kubelet is left pending although
	// only an administrator can approve it. Otherwise the condition is missing.
	ConditionCertificateApproved = "CertificateApproved"
)

// Reasons of CertificateApproved.
const (
	// ReasonClientCertificateNotApproved surfaces when the request for a client certificate, with which the node joins or
	// continues to act as a node, is left pending.
	ReasonClientCertificateNotApproved = "ClientCertificateNotApproved"

	// ReasonServingCertificateNotApproved surfaces when the request for a serving certificate, which `kubectl logs` and
	// `kubectl exec` need, is left pending.
	ReasonServingCertificateNotApproved = "ServingCertificateNotApproved"
)

// Reasons of Launched.
const (
	// ReasonInstanceLaunched surfaces when the instance exists.
	ReasonInstanceLaunched = "InstanceLaunched"

	// ReasonInstanceAdopted surfaces when an existing instance was taken over.
	ReasonInstanceAdopted = "InstanceAdopted"

	// ReasonInvalidConfiguration surfaces when spec, class, user data or provider spec is refused. If the provider refused
	// it, lastOperation reports it with a code and with the time of the next try. Otherwise nothing is tried until one of
	// them changes. MachineSets show it too, in ReplicaFailure, and MachineHealthChecks, in RemediationAllowed.
	ReasonInvalidConfiguration = "InvalidConfiguration"

	// ReasonUnknownTypeVersion surfaces when the label machinist.dev/type-version has a value other than ours.
	ReasonUnknownTypeVersion = "UnknownTypeVersion"

	// ReasonClassNotFound surfaces when the MachineClass does not exist.
	ReasonClassNotFound = "ClassNotFound"

	// ReasonClassDeleting surfaces when the MachineClass is being deleted and serves no more machines, and nothing was
	// asked of the cloud for this machine. It is a reason of a MachineClass's Ready, too, while the class is being
	// deleted.
	ReasonClassDeleting = "ClassDeleting"

	// ReasonCredentialsNotFound surfaces when the Secret with the cloud credentials does not exist or lacks a key. It
	// is a reason of Launched, Deleting and of a MachineClass's Ready.
	ReasonCredentialsNotFound = "CredentialsNotFound"

	// ReasonCredentialsRefused surfaces when the cloud refuses the credentials or what they ask for. It is a reason of
	// Launched, Deleting and of a MachineClass's Ready.
	ReasonCredentialsRefused = "CredentialsRefused"

	// ReasonSecretNotLabelled surfaces when a Secret must be used as credentials or user data and its label
	// machinist.dev/secret-use does not allow that. It is a reason of Launched, Deleting and of a MachineClass's Ready.
	ReasonSecretNotLabelled = "SecretNotLabelled"

	// ReasonUserDataNotFound surfaces when the Secret with the bootstrap template does not exist or lacks the key. It
	// is a reason of Launched and of a MachineClass's Ready.
	ReasonUserDataNotFound = "UserDataNotFound"

	// ReasonInvalidUserData surfaces when the bootstrap template cannot be read: it is damaged gzip, or UTF-16. It is a
	// reason of a MachineClass's Ready; Machines say InvalidConfiguration.
	ReasonInvalidUserData = "InvalidUserData"

	// ReasonInsufficientResources surfaces when the provider has no capacity or quota. It is tried again.
	ReasonInsufficientResources = "InsufficientResources"

	// ReasonCreateFailed surfaces when creation failed in another way. It is tried again.
	ReasonCreateFailed = "CreateFailed"

	// ReasonCreateTimeout surfaces when there is no instance within timeouts.creation.
	ReasonCreateTimeout = "CreateTimeout"

	// ReasonProvisioning surfaces when the provider accepted the creation and names no instance yet.
	ReasonProvisioning = "Provisioning"

	// ReasonProviderUnavailable surfaces when the provider's API cannot be reached, or no process serves the provider.
	ReasonProviderUnavailable = "ProviderUnavailable"

	// ReasonDuplicateProviderID surfaces on the younger of two Machines with one providerID.
	ReasonDuplicateProviderID = "DuplicateProviderID"

	// ReasonAdoptionForbidden surfaces when a Machine is created with a providerID and its class does not allow that.
	ReasonAdoptionForbidden = "AdoptionForbidden"

	// ReasonAdoptionRefused surfaces when the instance to be adopted does not exist, is going or belongs to someone else.
	ReasonAdoptionRefused = "AdoptionRefused"

	// ReasonAdoptionUnsupported surfaces when the provider cannot take over existing instances.
	ReasonAdoptionUnsupported = "AdoptionUnsupported"

	// ReasonInstanceVanished surfaces when the provider reports the instance gone.
	ReasonInstanceVanished = "InstanceVanished"
)

// Reasons of Registered.
const (
	// ReasonNodeRegistered surfaces when the Node belongs to the machine.
	ReasonNodeRegistered = "NodeRegistered"

	// ReasonWaitingForNode surfaces when no Node has appeared yet.
	ReasonWaitingForNode = "WaitingForNode"

	// ReasonWaitingForStartupTaints surfaces when startup taints are still on the Node.
	ReasonWaitingForStartupTaints = "WaitingForStartupTaints"

	// ReasonNodeTemplateContested surfaces on Registered, which is True, when another writer changes a label, an
	// annotation or a taint of the Node again and again after it was set. It is left as the other writer has it.
	ReasonNodeTemplateContested = "NodeTemplateContested"

	// ReasonNodeConflict surfaces when the Node is claimed by two Machines, or by another one. It surfaces on Deleting
	// when two Nodes have the machine's provider ID and the kubelets of both report.
	ReasonNodeConflict = "NodeConflict"

	// ReasonJoinClusterTimeout surfaces when the machine is not Running within timeouts.creation.
	ReasonJoinClusterTimeout = "JoinClusterTimeout"

	// ReasonNoTargetCluster surfaces where there is no target cluster to register in.
	ReasonNoTargetCluster = "NoTargetCluster"
)

// Reasons of NodeHealthy.
const (
	// ReasonNodeReady surfaces when the Node is Ready.
	ReasonNodeReady = "NodeReady"

	// ReasonNodeNotReady surfaces when the Node says that it is not Ready.
	ReasonNodeNotReady = "NodeNotReady"

	// ReasonNodeUnresponsive surfaces when the Node's Ready condition is Unknown: its kubelet is silent.
	ReasonNodeUnresponsive = "NodeUnresponsive"

	// ReasonNodeConditionsFailed surfaces when the Node is Ready and another of its conditions reports a problem.
	ReasonNodeConditionsFailed = "NodeConditionsFailed"

	// ReasonNodeGone surfaces when the Node was deleted. It is a reason of Registered too.
	ReasonNodeGone = "NodeGone"

	// ReasonTargetUnreachable surfaces when the target cluster cannot be reached. It is a reason of Registered, Drained,
	// DrainExtended and Deleting too.
	ReasonTargetUnreachable = "TargetUnreachable"
)

// Reasons of UpToDate. The condition is True with the reason UpToDate.
const (
	// ReasonUpToDate surfaces when the instance is what spec asks for.
	ReasonUpToDate = "UpToDate"

	// ReasonUpdatePending surfaces when a change is known and not yet begun.
	ReasonUpdatePending = "UpdatePending"

	// ReasonUpdating surfaces when the instance is being changed in place.
	ReasonUpdating = "Updating"

	// ReasonReplacing surfaces when the instance is being replaced under the same Machine. It is a reason of Launched
	// and Registered too.
	ReasonReplacing = "Replacing"

	// ReasonWaitingForAgent surfaces when the agent on the node was asked to update it and has not answered.
	ReasonWaitingForAgent = "WaitingForAgent"

	// ReasonUnsupportedChange surfaces when the provider can neither change nor replace the instance. The old one keeps
	// running.
	ReasonUnsupportedChange = "UnsupportedChange"

	// ReasonUpdateError surfaces when a change failed. It is tried again; by an agent on the node when a person asks for
	// it.
	ReasonUpdateError = "UpdateError"

	// ReasonUpdateTimeout surfaces when a change in place took longer than timeouts.update.
	ReasonUpdateTimeout = "UpdateTimeout"
)

// Reasons of Drained and VolumesDetached.
const (
	// ReasonDrained surfaces when no pod is left to evict.
	ReasonDrained = "Drained"

	// ReasonDraining surfaces when pods are being evicted. It is a reason of Deleting too.
	ReasonDraining = "Draining"

	// ReasonBlockedByDisruptionBudget surfaces when a PodDisruptionBudget refuses evictions. The message names it.
	ReasonBlockedByDisruptionBudget = "BlockedByDisruptionBudget"

	// ReasonDrainForced surfaces when the deadline is near and pods are deleted, not evicted.
	ReasonDrainForced = "DrainForced"

	// ReasonDrainError surfaces when pods cannot be listed, evicted or deleted. It is tried again.
	ReasonDrainError = "DrainError"

	// ReasonSkipped surfaces when an annotation, the lack of a Node or an unreachable node made the step needless. It
	// is a reason of Drained and VolumesDetached.
	ReasonSkipped = "Skipped"

	// ReasonVolumesDetached surfaces when no volume that matters is attached to the node.
	ReasonVolumesDetached = "VolumesDetached"

	// ReasonWaitingForVolumeDetach surfaces when volumes are still attached. It is a reason of Deleting too.
	ReasonWaitingForVolumeDetach = "WaitingForVolumeDetach"

	// ReasonNodeOutOfService surfaces when the instance of a node that did not report is gone and volumes are still
	// attached to it: Kubernetes detaches them by force. It is a reason of VolumesDetached.
	ReasonNodeOutOfService = "NodeOutOfService"

	// ReasonVolumeDetachTimeout surfaces when volumes are still attached after timeouts.volumeDetach: it goes on.
	ReasonVolumeDetachTimeout = "VolumeDetachTimeout"
)

// Reasons of Deleting, beside Draining, WaitingForVolumeDetach, CredentialsNotFound, TargetUnreachable and
// PausedByAnnotation.
const (
	// ReasonDeletionStarted surfaces when the deletion was seen and no step is waited for. On a MachineClass it surfaces
	// in the first seconds: no instance is created from it until it is known whether the Machines that use it stay.
	ReasonDeletionStarted = "DeletionStarted"

	// ReasonWaitingForPreDrainHook surfaces when spec.lifecycleHooks.preDrain is not empty.
	ReasonWaitingForPreDrainHook = "WaitingForPreDrainHook"

	// ReasonWaitingForPreTerminateHook surfaces when spec.lifecycleHooks.preTerminate is not empty.
	ReasonWaitingForPreTerminateHook = "WaitingForPreTerminateHook"

	// ReasonInstanceTerminating surfaces when the provider is deleting the instance.
	ReasonInstanceTerminating = "InstanceTerminating"

	// ReasonCreateSettling surfaces when the provider shows no instance and one that was created, or asked for, may show
	// yet.
	ReasonCreateSettling = "CreateSettling"

	// ReasonDeleteError surfaces when the provider failed to delete the instance. It is tried again.
	ReasonDeleteError = "DeleteError"

	// ReasonInstanceDeleted surfaces when the instance is gone and Node, token or finalizer remain.
	ReasonInstanceDeleted = "InstanceDeleted"
)

// Reasons of Paused.
const (
	// ReasonPausedByAnnotation surfaces when machinist.dev/paused or cluster.x-k8s.io/paused is there.
	ReasonPausedByAnnotation = "PausedByAnnotation"

	// ReasonNotPaused surfaces when the object is no longer paused.
	ReasonNotPaused = "NotPaused"
)

// Reasons of Preserved, beside InvalidConfiguration.
const (
	// ReasonPreserved surfaces when the machine is cordoned, belongs to no set any more and is kept. The message says
	// until when.
	ReasonPreserved = "Preserved"

	// ReasonTooLate surfaces when a machine that is being deleted must be preserved.
	ReasonTooLate = "TooLate"

	// ReasonTooManyPreserved surfaces when a machine with machinist.dev/preserve: when-failed is not preserved, because
	// as many of its MachineDeployment, or of its MachineSet alone, are as --preserve-limit allows. It is replaced as
	// usual.
	ReasonTooManyPreserved = "TooManyPreserved"
)

// Reasons of InterruptionNotice. While it is True they are reasons of Ready too.
const (
	// ReasonPreemptionNotice surfaces when the cloud announced that it takes a spot or preemptible instance back. The
	// message says who announced it, and status.interruptionTime when it happens.
	ReasonPreemptionNotice = "PreemptionNotice"

	// ReasonTerminationNotice surfaces when it was announced that the instance will be terminated for another reason,
	// such as a scaling group that shrinks or a host that is retired.
	ReasonTerminationNotice = "TerminationNotice"

	// ReasonInterruptionWithdrawn surfaces when the announcement was taken back before the instance was gone.
	ReasonInterruptionWithdrawn = "InterruptionWithdrawn"
)

// Reasons of RemediationRequested: the policy that asks.
const (
	// ReasonMachineHealthCheck surfaces when a MachineHealthCheck found the machine unhealthy. The message names it.
	ReasonMachineHealthCheck = "MachineHealthCheck"

	// ReasonBuiltInPolicy surfaces when the manager's built-in policy found the machine unhealthy.
	ReasonBuiltInPolicy = "BuiltInPolicy"

	// ReasonExternalRemediation surfaces when a MachineHealthCheck with remediation type External found the machine
	// unhealthy: a remediator outside Machinist acts, the owner does not. The message names the check.
	ReasonExternalRemediation = "ExternalRemediation"

	// ReasonRemediateAnnotation surfaces when a person asked by the annotation machinist.dev/remediate.
	ReasonRemediateAnnotation = "RemediateAnnotation"

	// ReasonRetriesExhausted surfaces, while RemediationRequested is False, when as many machines in a row were replaced
	// before this one as the MachineHealthCheck allows: it is not replaced, even if it fails. It is a reason of
	// RemediationAllowed too.
	ReasonRetriesExhausted = "RetriesExhausted"
)

// Reasons of Ready while it is True or nothing is known. While it is False they are those of the condition in the way.
const (
	// ReasonMachineReady surfaces when nothing is in the way.
	ReasonMachineReady = "MachineReady"

	// ReasonPending surfaces when nothing was done about the machine yet.
	ReasonPending = "Pending"
)
