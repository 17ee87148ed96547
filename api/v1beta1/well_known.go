package v1beta1

// Finalizers.
const (
	// MachineFinalizer holds a Machine until its instance is gone.
	MachineFinalizer = "machinist.dev/machine"

	// InUseFinalizer holds a MachineClass that a Machine has used until none does, the Secrets that a class or a
	// Machine of the inline form references while that exists, and a Provider while Machines or such classes need it.
	InUseFinalizer = "machinist.dev/in-use"
)

// Labels on Machinist's own objects.
const (
	// LabelTemplateHash carries, on a MachineSet and its Machines, the hash of what rolls in the template.
	LabelTemplateHash = "machinist.dev/template-hash"

	// LabelMachineSet names, on a Machine, the MachineSet that owns it.
	LabelMachineSet = "machinist.dev/machine-set"

	// LabelMachineDeployment names, on a MachineSet and its Machines, the MachineDeployment.
	LabelMachineDeployment = "machinist.dev/machine-deployment"

	// LabelProvider routes a Machine to its provider. The set stamps it, or the provider for machines made by hand.
	LabelProvider = "machinist.dev/provider"

	// LabelFreeze marks a MachineSet or MachineDeployment whose creation of machines is stopped.
	LabelFreeze = "machinist.dev/freeze"

	// FreezeMoving is the value of LabelFreeze on what is moved to another control cluster.
	FreezeMoving = "Moving"

	// LabelSelectedForUpdate chooses, on a Machine, what an InPlace rollout with orchestration Manual updates.
	LabelSelectedForUpdate = "machinist.dev/selected-for-update"

	// LabelInstalledBy names, on what machinist-operator made, the Provider that it was made for.
	LabelInstalledBy = "machinist.dev/installed-by"

	// LabelTypeVersion says which schema a Machine was written for. A Machine with a value other than TypeVersion is
	// neither created, updated nor health checked; its deletion works. Without the label it counts as current. The
	// label is not part of the template hash.
	LabelTypeVersion = "machinist.dev/type-version"

	// TypeVersion is the value of LabelTypeVersion for the schema of this package.
	TypeVersion = Version
)

// LabelSecretUse says, on a Secret, what MachineClasses and Machines of its namespace may use it for:
// SecretUseCredentials, SecretUseUserData or SecretUseBoth. Without it nothing is read from the Secret. Who may write
// a class or a Machine could otherwise have any Secret of the namespace written into the user data of an instance.
const LabelSecretUse = "machinist.dev/secret-use"

// Values of LabelSecretUse.
const (
	SecretUseCredentials = "credentials"
	SecretUseUserData    = "user-data"
	SecretUseBoth        = "credentials-and-user-data"
)

// Annotations on Machinist's own objects. They act by presence, except where values are listed.
const (
	// AnnotationDeleteMachine marks the Machine that a MachineSet deletes first when it is scaled down.
	AnnotationDeleteMachine = "machinist.dev/delete-machine"

	// AnnotationDeletePriority is an integer on a Machine; lower goes first when a MachineSet is scaled down. Without
	// it DefaultDeletePriority holds.
	AnnotationDeletePriority = "machinist.dev/delete-priority"

	// DefaultDeletePriority is the priority of a Machine without AnnotationDeletePriority.
	DefaultDeletePriority = 3

	// AnnotationPaused stops everything that would change a Machine: driver calls, evictions, deletion, remediation.
	// Its status is still observed and it counts as live.
	AnnotationPaused = "machinist.dev/paused"

	// AnnotationClusterAPIPaused is read as AnnotationPaused.
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"

	// AnnotationSkipDrain deletes a Machine without draining its node.
	AnnotationSkipDrain = "machinist.dev/skip-drain"

	// AnnotationSkipRemediation exempts a Machine from remediation.
	AnnotationSkipRemediation = "machinist.dev/skip-remediation"

	// AnnotationRemediate asks for remediation of a Machine, whatever its health.
	AnnotationRemediate = "machinist.dev/remediate"

	// AnnotationDoNotDisrupt exempts a Machine from every voluntary disruption (DisruptionReasons), by presence or, with a
	// time (RFC 3339) as its value, until then. A scale-down takes it last, and a deletion by people is not stopped. A
	// value that is no time exempts the Machine without end.
	AnnotationDoNotDisrupt = "machinist.dev/do-not-disrupt"

	// AnnotationReplace asks for another machine in the stead of a Machine: it is made first, and the Machine goes when it
	// is available.
	AnnotationReplace = "machinist.dev/replace"

	// AnnotationAllowVersionSkew on a MachineDeployment lets it roll out a kubelet version that Kubernetes does not
	// support with the API server of the target cluster. On any owner of machines it stops the warning of that.
	AnnotationAllowVersionSkew = "machinist.dev/allow-version-skew"

	// AnnotationPauseReason on a MachineDisruptionBudget says why somebody paused a fleet, for people.
	AnnotationPauseReason = "machinist.dev/pause-reason"

	// AnnotationPausedBy on a MachineDisruptionBudget is the user who paused a fleet, for people.
	AnnotationPausedBy = "machinist.dev/paused-by"

	// AnnotationRetry tries at once what the provider refused or failed at: the creation or the update of the instance
	// of a Machine. Every new value is one try; without it the provider is asked when the next try is due.
	AnnotationRetry = "machinist.dev/retry"

	// AnnotationForceDelete deletes a Machine without drain and without waiting for volumes, also in the middle. If the
	// cloud does not remove the instance, the Machine goes without it, and orphan collection removes the instance later.
	AnnotationForceDelete = "machinist.dev/force-delete"

	// AnnotationPreserve preserves a Machine for inspection while its set replaces it: PreserveNow or
	// PreserveWhenFailed.
	AnnotationPreserve = "machinist.dev/preserve"

	// PreserveNow is the value of AnnotationPreserve that preserves a Machine at once.
	PreserveNow = "now"

	// PreserveWhenFailed is the value of AnnotationPreserve that preserves a Machine when it becomes Failed.
	PreserveWhenFailed = "when-failed"

	// AnnotationPreservedUntil is the time (RFC 3339) at which a preserved Machine is deleted. A Machine with it is
	// never adopted or counted by a set.
	AnnotationPreservedUntil = "machinist.dev/preserved-until"

	// AnnotationPreservedFrom on a preserved Machine names the MachineSet that it was taken from.
	AnnotationPreservedFrom = "machinist.dev/preserved-from"

	// AnnotationReleasedFrom on a Machine without an owner is the UID of the MachineDeployment, or of the MachineSet
	// alone, whose labels it lost. It counts towards the ceiling of that owner's sets until it is deleted or adopted.
	AnnotationReleasedFrom = "machinist.dev/released-from"

	// AnnotationUnfreeze ends the freeze of a MachineSet or MachineDeployment.
	AnnotationUnfreeze = "machinist.dev/unfreeze"

	// AnnotationAllowDeletion, with the value true, on a CustomResourceDefinition of this API group lets it be deleted,
	// which the admission policy refuses otherwise. All objects of the kind go with it, and the machines that they own.
	AnnotationAllowDeletion = "machinist.dev/allow-deletion"

	// AnnotationRemoveOrphansUntil, a time (RFC 3339) at most MaxOrphanRemoval ahead, on a MachineClass lets instances
	// without a Machine that are found with the class be removed until then, although OrphanRemovalBlocked is True.
	AnnotationRemoveOrphansUntil = "machinist.dev/remove-orphans-until"

	// AnnotationAdoptFromCluster, a cluster id, on a MachineClass lets its Machines take over instances with the tags of
	// that cluster and of a Machine with the same namespace and name: those of a control cluster that was lost or moved.
	// It counts until AnnotationAdoptFromClusterUntil. The former cluster must not run any more, or two of them would
	// work on one instance.
	AnnotationAdoptFromCluster = "machinist.dev/adopt-from-cluster"

	// AnnotationAdoptFromClusterUntil is the time (RFC 3339), at most MaxAdoptionFromCluster ahead, until which
	// AnnotationAdoptFromCluster counts.
	AnnotationAdoptFromClusterUntil = "machinist.dev/adopt-from-cluster-until"

	// AnnotationMovingTo, the id of another control cluster, is on what machinist move takes there, until it is deleted
	// here. A Machine with it was paused for that, a MachineSet or MachineDeployment frozen (FreezeMoving).
	AnnotationMovingTo = "machinist.dev/moving-to-cluster"

	// AnnotationMovedTo on a Machine is the id of the control cluster that has taken its instance over. Only then is the
	// Machine deleted here, and its instance left alone.
	AnnotationMovedTo = "machinist.dev/moved-to-cluster"

	// AnnotationMovedFrom is the id of the control cluster from which machinist move brought the object.
	AnnotationMovedFrom = "machinist.dev/moved-from-cluster"

	// AnnotationRevision is the number of a MachineSet's or MachineDeployment's revision.
	AnnotationRevision = "machinist.dev/revision"

	// AnnotationHashVersion says by which algorithm the template hash of a MachineSet was made.
	AnnotationHashVersion = "machinist.dev/hash-version"

	// AnnotationMoveTo on a MachineSet, with the value <set>:<n>, hands n machines over to another set.
	AnnotationMoveTo = "machinist.dev/move-to"

	// AnnotationReceiveFrom on a MachineSet names the set that hands machines over to it.
	AnnotationReceiveFrom = "machinist.dev/receive-from"
)

// Annotations by which Machinist's controllers remember and tell each other things. They are nobody else's to set.
const (
	// AnnotationNoCreate stops a MachineSet from making or adopting machines, by presence. With strategy OnDelete it is
	// on the sets of old revisions, so that a machine that someone deletes is replaced by one of the new revision.
	AnnotationNoCreate = "machinist.dev/no-create"

	// AnnotationSizedFor on the newest set of a MachineDeployment is the number of replicas that its sets were last sized
	// for. Another number means that someone changed replicas since, and the sets follow in proportion.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationExchangeSurge on the set of a MachineDeployment's current revision is how many of its machines exist
	// beyond replicas because others are exchanged. So the set knows which machines too many go because people want
	// fewer: those ask no budget.
	AnnotationExchangeSurge = "machinist.dev/exchange-surge"

	// AnnotationRolloutAfter on a MachineSet is the rolloutAfter (RFC 3339) that was past when the set was made: its
	// machines are newer than that, whatever the clocks say.
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationRemediationRetry on a Machine that replaces one that failed or was unhealthy, with the value <n>/<UID>,
	// tells how many machines in a row were replaced before it, and the last of them.
	AnnotationRemediationRetry = "machinist.dev/remediation-retry"

	// AnnotationAppliedHash on what machinist-operator made is a hash of what it applied, so that it applies nothing
	// twice.
	AnnotationAppliedHash = "machinist.dev/applied-hash"

	// AnnotationLastAppliedTemplate on a Machine lists the keys that its set's template put there, so that a key which
	// the template loses is removed and one that somebody else added stays.
	AnnotationLastAppliedTemplate = "machinist.dev/last-applied-template"
)

// Keys on Nodes.
const (
	// NodeLabelMachine and NodeAnnotationMachine name the Machine of a Node. They are output only: the truth is the
	// Machine's status.nodeRef.
	NodeLabelMachine      = "machinist.dev/machine"
	NodeAnnotationMachine = "machinist.dev/machine"

	// NodeAnnotationClusterNamespace is the namespace of the Machine of a Node.
	NodeAnnotationClusterNamespace = "machinist.dev/cluster-namespace"

	// NodeAnnotationInstance says which instance a Node is: the cluster id of the installation, its provider, the class
	// and the provider ID. If the Machine is lost, orphan collection finds the Node by it. It is output only.
	NodeAnnotationInstance = "machinist.dev/instance"

	// NodeAnnotationLastAppliedNodeTemplate is a fingerprint of what was last applied to a Node from spec.node. It keeps
	// an older request that comes late from undoing that, and says nothing else: who writes to the Node may write it as
	// well. What was applied is in status.nodeTemplate of the Machine.
	NodeAnnotationLastAppliedNodeTemplate = "machinist.dev/last-applied-node-template"

	// NodeAnnotationInstanceRemoved marks the Node of an instance without a Machine that is being removed. It names the
	// object (namespace/name) with whose credentials the instance was found. When the instance is gone, the Node is
	// deleted.
	NodeAnnotationInstanceRemoved = "machinist.dev/instance-removed"

	// NodeAnnotationUpdateRequested asks the agent on a Node to update it to the version that is its value.
	NodeAnnotationUpdateRequested = "machinist.dev/update-requested"

	// NodeAnnotationUpdateResult is the agent's answer: UpdateResultSucceeded, or UpdateResultFailed with an optional
	// reason after a colon.
	NodeAnnotationUpdateResult = "machinist.dev/update-result"

	// UpdateResultSucceeded is the value of NodeAnnotationUpdateResult after a successful update.
	UpdateResultSucceeded = "succeeded"

	// UpdateResultFailed is the value, or its part before the colon, of NodeAnnotationUpdateResult after a failed
	// update.
	UpdateResultFailed = "failed"

	// NodeAnnotationCordoned says that it was Machinist, not a person, that made a Node unschedulable.
	NodeAnnotationCordoned = "machinist.dev/cordoned"

	// NodeTaintUninitialized (effect NoSchedule) is on a Node until its Machine's labels, annotations and taints are.
	NodeTaintUninitialized = "machinist.dev/uninitialized"

	// NodeTaintOutdated (effect PreferNoSchedule) is on the Nodes of an old revision during a rollout.
	NodeTaintOutdated = "machinist.dev/outdated"
)

// Tags of an instance at its provider.
const (
	// TagCluster is the cluster id.
	TagCluster = "machinist-cluster"

	// TagMachineUID is the UID of the Machine.
	TagMachineUID = "machinist-machine-uid"

	// TagMachine is namespace/name of the Machine.
	TagMachine = "machinist-machine"
)

// Keys that cluster-autoscaler's clusterapi provider reads and writes when it runs with CAPI_GROUP=machinist.dev.
// Besides these it uses AnnotationDeleteMachine, NodeAnnotationMachine and NodeAnnotationClusterNamespace.
const (
	// AutoscalerMinSizeAnnotation and AutoscalerMaxSizeAnnotation on a MachineSet or MachineDeployment make it a node
	// group: integers, 0 ≤ min ≤ max.
	AutoscalerMinSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMaxSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-max-size"

	// AutoscalerCapacityPrefix begins the annotations on a MachineSet or MachineDeployment that describe its Nodes
	// while there is none.
	AutoscalerCapacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"

	// AutoscalerCPUAnnotation and the following annotations describe one property of a Node each.
	AutoscalerCPUAnnotation           = AutoscalerCapacityPrefix + "cpu"
	AutoscalerMemoryAnnotation        = AutoscalerCapacityPrefix + "memory"
	AutoscalerEphemeralDiskAnnotation = AutoscalerCapacityPrefix + "ephemeral-disk"
	AutoscalerMaxPodsAnnotation       = AutoscalerCapacityPrefix + "maxPods"
	AutoscalerGPUTypeAnnotation       = AutoscalerCapacityPrefix + "gpu-type"
	AutoscalerGPUCountAnnotation      = AutoscalerCapacityPrefix + "gpu-count"
	AutoscalerLabelsAnnotation        = AutoscalerCapacityPrefix + "labels"
	AutoscalerTaintsAnnotation        = AutoscalerCapacityPrefix + "taints"
	AutoscalerDRADriverAnnotation     = AutoscalerCapacityPrefix + "dra-driver"
	AutoscalerCSIDriverAnnotation     = AutoscalerCapacityPrefix + "csi-driver"

	// AutoscalerDeploymentNameLabel names, on a MachineSet, the MachineDeployment that owns it.
	AutoscalerDeploymentNameLabel = "cluster.x-k8s.io/deployment-name"

	// AutoscalerRevisionAnnotation is the revision, on a MachineSet of a MachineDeployment.
	AutoscalerRevisionAnnotation = "machinedeployment.clusters.x-k8s.io/revision"

	// NodeAnnotationScaleDownDisabled on a Node keeps cluster-autoscaler from removing it.
	NodeAnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// NodeLabelExcludeFromLoadBalancers takes a Node out of external load balancers while its Machine is being deleted.
const NodeLabelExcludeFromLoadBalancers = "node.kubernetes.io/exclude-from-external-load-balancers"

// Lengths of names. They become label values, and the names of machines and sets are made from those of their owners.
const (
	// MaxMachineDeploymentNameLength leaves room for -<template hash> and -<5 random characters>.
	MaxMachineDeploymentNameLength = 47

	// MaxTemplateHashLength is the longest template hash.
	MaxTemplateHashLength = 9

	// MaxMachineSetNameLength leaves room for -<5 random characters>.
	MaxMachineSetNameLength = 57

	// MaxMachineNameLength is the longest value of a label.
	MaxMachineNameLength = 63
)
