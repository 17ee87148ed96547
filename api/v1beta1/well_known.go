package v1beta1

// Finalizers.
const (
	// MachineFinalizer keeps a Machine until its instance is gone.
	MachineFinalizer = "machinist.dev/machine"

	// InUseFinalizer keeps objects that are still needed:
	//
	//   - a MachineClass, from the first Machine that uses it until no Machine uses it
	//   - a Secret, while a class or a Machine of the inline form refers to it
	//   - a Provider, while Machines or such classes need its process
	InUseFinalizer = "machinist.dev/in-use"
)

// Labels of Machinist's own objects.
const (
	// LabelTemplateHash on a MachineSet and its Machines is a hash of those parts of the template whose change starts a
	// rollout.
	LabelTemplateHash = "machinist.dev/template-hash"

	// LabelMachineSet on a Machine is the name of the MachineSet that owns it.
	LabelMachineSet = "machinist.dev/machine-set"

	// LabelMachineDeployment on a MachineSet and its Machines is the name of the MachineDeployment.
	LabelMachineDeployment = "machinist.dev/machine-deployment"

	// LabelProvider on a Machine is the name of the provider that serves it. The MachineSet sets the label. On a Machine
	// that a user created, the provider sets it.
	LabelProvider = "machinist.dev/provider"

	// LabelFreeze stops a MachineSet or MachineDeployment from creating machines.
	LabelFreeze = "machinist.dev/freeze"

	// FreezeMoving is the value of LabelFreeze on objects that are being moved to another control cluster.
	FreezeMoving = "Moving"

	// LabelSelectedForUpdate selects a Machine for an update in place, in a rollout with the strategy InPlace and the
	// orchestration Manual.
	LabelSelectedForUpdate = "machinist.dev/selected-for-update"

	// LabelInstalledBy on an object that machinist-operator created is the name of the Provider for which it was created.
	LabelInstalledBy = "machinist.dev/installed-by"

	// LabelTypeVersion on a Machine names the schema for which the Machine was written. A Machine with a value other than
	// TypeVersion is not created, updated or health checked, but can be deleted. A Machine without the label counts as
	// current. The label is not part of the template hash.
	LabelTypeVersion = "machinist.dev/type-version"

	// TypeVersion is the value of LabelTypeVersion for the schema of this package.
	TypeVersion = Version
)

// LabelSecretUse on a Secret defines for what MachineClasses and Machines of its namespace may use the Secret:
// SecretUseCredentials, SecretUseUserData or SecretUseBoth. A Secret without the label is not read. Otherwise every
// user who may write a class or a Machine could put any Secret of the namespace into the user data of an instance.
const LabelSecretUse = "machinist.dev/secret-use"

// Values of LabelSecretUse.
const (
	SecretUseCredentials = "credentials"
	SecretUseUserData    = "user-data"
	SecretUseBoth        = "credentials-and-user-data"
)

// Annotations of Machinist's own objects. Unless values are listed, an annotation takes effect with any value.
const (
	// AnnotationDeleteMachine marks a Machine that its MachineSet deletes first when it is scaled down.
	AnnotationDeleteMachine = "machinist.dev/delete-machine"

	// AnnotationDeletePriority on a Machine is an integer. When a MachineSet is scaled down, Machines with a lower
	// priority are deleted first. The default is DefaultDeletePriority.
	AnnotationDeletePriority = "machinist.dev/delete-priority"

	// DefaultDeletePriority is the priority of a Machine without AnnotationDeletePriority.
	DefaultDeletePriority = 3

	// AnnotationPaused stops everything that would change a Machine: driver calls, evictions, its deletion and its
	// remediation. The status of the Machine is still updated, and the Machine still counts as live.
	AnnotationPaused = "machinist.dev/paused"

	// AnnotationClusterAPIPaused has the same effect as AnnotationPaused.
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"

	// AnnotationSkipDrain makes the deletion of a Machine skip the drain of its Node.
	AnnotationSkipDrain = "machinist.dev/skip-drain"

	// AnnotationSkipRemediation exempts a Machine from remediation.
	AnnotationSkipRemediation = "machinist.dev/skip-remediation"

	// AnnotationRemediate requests the remediation of a Machine, whatever its health.
	AnnotationRemediate = "machinist.dev/remediate"

	// AnnotationDoNotDisrupt exempts a Machine from every voluntary disruption (DisruptionReasons). If its value is a time
	// (RFC 3339), the exemption ends at that time. With any other value, it does not end. A scale-down deletes the Machine
	// last. A deletion by a user is not prevented.
	AnnotationDoNotDisrupt = "machinist.dev/do-not-disrupt"

	// AnnotationReplace requests the replacement of a Machine. Another Machine is created first, and this Machine is
	// deleted when the other one is available.
	AnnotationReplace = "machinist.dev/replace"

	// AnnotationAllowVersionSkew on a MachineDeployment permits the rollout of a kubelet version that Kubernetes does not
	// support with the API server of the target cluster. On every owner of machines, it turns off the warning about such a
	// version.
	AnnotationAllowVersionSkew = "machinist.dev/allow-version-skew"

	// AnnotationPauseReason on a MachineDisruptionBudget is the reason why a user paused a fleet, for information.
	AnnotationPauseReason = "machinist.dev/pause-reason"

	// AnnotationPausedBy on a MachineDisruptionBudget is the user who paused a fleet, for information.
	AnnotationPausedBy = "machinist.dev/paused-by"

	// AnnotationRetry on a Machine makes the provider try a refused or failed operation again at once. Every new value
	// causes one try. Without the annotation, the provider tries again when the next try is due.
	AnnotationRetry = "machinist.dev/retry"

	// AnnotationForceDelete deletes a Machine without a drain and without waiting for volumes, even if the drain has
	// already begun. If the cloud does not remove the instance, the Machine is removed without it. Orphan collection then
	// removes the instance later.
	AnnotationForceDelete = "machinist.dev/force-delete"

	// AnnotationPreserve preserves a Machine for inspection, while its set replaces it. Its value is PreserveNow or
	// PreserveWhenFailed.
	AnnotationPreserve = "machinist.dev/preserve"

	// PreserveNow is the value of AnnotationPreserve that preserves a Machine at once.
	PreserveNow = "now"

	// PreserveWhenFailed is the value of AnnotationPreserve that preserves a Machine when it becomes Failed.
	PreserveWhenFailed = "when-failed"

	// AnnotationPreservedUntil is the time (RFC 3339) at which a preserved Machine is deleted. A set never adopts or
	// counts a Machine with this annotation.
	AnnotationPreservedUntil = "machinist.dev/preserved-until"

	// AnnotationPreservedFrom on a preserved Machine is the name of the MachineSet to which the Machine belonged.
	AnnotationPreservedFrom = "machinist.dev/preserved-from"

	// AnnotationReleasedFrom is on a Machine that a set released because its labels no longer matched. Its value is the
	// UID of the MachineDeployment, or of the standalone MachineSet. The Machine counts towards the hard limit on machines
	// of that owner until it is deleted or adopted.
	AnnotationReleasedFrom = "machinist.dev/released-from"

	// AnnotationUnfreeze ends the freeze of a MachineSet or MachineDeployment.
	AnnotationUnfreeze = "machinist.dev/unfreeze"

	// AnnotationAllowDeletion, with the value true, on a CustomResourceDefinition of this API group permits its deletion,
	// which the admission policy otherwise refuses. The deletion also deletes all objects of the kind, and the machines
	// that they own.
	AnnotationAllowDeletion = "machinist.dev/allow-deletion"

	// AnnotationRemoveOrphansUntil on a MachineClass is a time (RFC 3339) at most MaxOrphanRemoval in the future. Until
	// then, instances without a Machine that are found with the class are removed although OrphanRemovalBlocked is True.
	// It concerns only instances whose tags name the namespace of the class, or a namespace in which no class finds them.
	AnnotationRemoveOrphansUntil = "machinist.dev/remove-orphans-until"

	// AnnotationAdoptFromCluster on a MachineClass is the cluster ID of a control cluster that was lost or from which a
	// fleet was moved. Machines of the class may adopt instances with the tags of that cluster and of a Machine with the
	// same namespace and name, if a list for the class covers them. The permission lasts until
	// AnnotationAdoptFromClusterUntil. The processes of the former cluster must not run any more, because otherwise two
	// installations would manage the same instance.
	AnnotationAdoptFromCluster = "machinist.dev/adopt-from-cluster"

	// AnnotationAdoptFromClusterUntil is the time (RFC 3339), at most MaxAdoptionFromCluster in the future, until which
	// AnnotationAdoptFromCluster is in effect.
	AnnotationAdoptFromClusterUntil = "machinist.dev/adopt-from-cluster-until"

	// AnnotationMovingTo is on objects that machinist move is moving to another control cluster, until they are deleted in
	// this one. Its value is the cluster ID of the other control cluster. A Machine with it was paused by the move, and a
	// MachineSet or MachineDeployment was frozen by it (FreezeMoving).
	AnnotationMovingTo = "machinist.dev/moving-to-cluster"

	// AnnotationMovedTo on a Machine is the cluster ID of the control cluster that has adopted its instance. Only then is
	// the Machine deleted in this control cluster, without its instance.
	AnnotationMovedTo = "machinist.dev/moved-to-cluster"

	// AnnotationMovedFrom is the cluster ID of the control cluster from which machinist move moved the object.
	AnnotationMovedFrom = "machinist.dev/moved-from-cluster"

	// AnnotationRevision is the number of the revision of a MachineSet or MachineDeployment.
	AnnotationRevision = "machinist.dev/revision"

	// AnnotationHashVersion is the version of the algorithm with which the template hash of a MachineSet was calculated.
	AnnotationHashVersion = "machinist.dev/hash-version"

	// AnnotationMoveTo on a MachineSet, with the value <set>:<n>, orders it to hand over n machines to another set.
	AnnotationMoveTo = "machinist.dev/move-to"

	// AnnotationReceiveFrom on a MachineSet is the name of the set that hands over machines to it.
	AnnotationReceiveFrom = "machinist.dev/receive-from"
)

// Annotations in which Machinist's controllers store state, and by which they communicate. Only these controllers set
// them.
const (
	// AnnotationNoCreate stops a MachineSet from creating or adopting machines. With the strategy OnDelete, it is on the
	// sets of old revisions, so that a machine that a user deletes is replaced by a machine of the new revision.
	AnnotationNoCreate = "machinist.dev/no-create"

	// AnnotationSizedFor on the newest set of a MachineDeployment is the number of replicas for which its sets were last
	// scaled. If it differs from spec.replicas, a user or autoscaler has changed replicas since, and the sets are scaled
	// in proportion.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationExchangeSurge on the set of a MachineDeployment's current revision is the number of its machines beyond
	// replicas that exist because machines are being replaced. The set uses it to find out which surplus machines are
	// deleted because fewer are wanted: no budget limits their deletion.
	AnnotationExchangeSurge = "machinist.dev/exchange-surge"

	// AnnotationOutdated on a MachineSet means that its MachineDeployment is replacing or updating the machines of the set
	// step by step. Until the annotation is removed, their Nodes have NodeTaintOutdated and
	// NodeAnnotationScaleDownDisabled.
	AnnotationOutdated = "machinist.dev/outdated"

	// AnnotationRolloutAfter on a MachineSet is the rolloutAfter (RFC 3339) that had passed when the set was created. The
	// machines of the set count as newer than that time, whatever the clocks show.
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationRemediationRetry is on a Machine that replaces a failed or unhealthy one, with the value <n>/<UID>. n is
	// the number of machines in a row that were replaced before it, and UID identifies the last of them.
	AnnotationRemediationRetry = "machinist.dev/remediation-retry"

	// AnnotationAppliedHash on an object that machinist-operator created is a hash of what the operator applied. The
	// operator uses it to avoid applying the same content twice.
	AnnotationAppliedHash = "machinist.dev/applied-hash"

	// AnnotationLastAppliedTemplate on a Machine lists the keys that came from the template of its set. If a key is
	// removed from the template, it is therefore removed from the Machine, while keys that others added stay.
	AnnotationLastAppliedTemplate = "machinist.dev/last-applied-template"
)

// Keys on Nodes.
const (
	// NodeLabelMachine and NodeAnnotationMachine are the name of the Machine of a Node. They are for information only:
	// Machinist relies on status.nodeRef of the Machine.
	NodeLabelMachine      = "machinist.dev/machine"
	NodeAnnotationMachine = "machinist.dev/machine"

	// NodeAnnotationClusterNamespace is the namespace of the Machine of a Node.
	NodeAnnotationClusterNamespace = "machinist.dev/cluster-namespace"

	// NodeAnnotationInstance identifies the instance of a Node by the cluster ID of the installation, the provider, the
	// class and the provider ID. If the Machine is lost, orphan collection finds the Node by this annotation.
	NodeAnnotationInstance = "machinist.dev/instance"

	// NodeAnnotationLastAppliedNodeTemplate is a fingerprint of what was last applied to a Node from spec.node. It
	// prevents an older request that arrives late from undoing a newer one. It proves nothing else, because other clients
	// that may write to the Node can change it. The applied keys are in status.nodeTemplate of the Machine.
	NodeAnnotationLastAppliedNodeTemplate = "machinist.dev/last-applied-node-template"

	// NodeAnnotationInstanceRemoved marks the Node of an instance without a Machine that is being removed. Its value is
	// the object (namespace/name) with whose credentials the instance was found. The Node is deleted when the instance is
	// gone.
	NodeAnnotationInstanceRemoved = "machinist.dev/instance-removed"

	// NodeAnnotationUpdateRequested requests that the agent on a Node updates the kubelet to the version in its value.
	NodeAnnotationUpdateRequested = "machinist.dev/update-requested"

	// NodeAnnotationUpdateResult is the answer of the agent: UpdateResultSucceeded, or UpdateResultFailed, optionally
	// followed by a colon and a reason.
	NodeAnnotationUpdateResult = "machinist.dev/update-result"

	// UpdateResultSucceeded is the value of NodeAnnotationUpdateResult after a successful update.
	UpdateResultSucceeded = "succeeded"

	// UpdateResultFailed is the value of NodeAnnotationUpdateResult after a failed update, or the part of the value before
	// the colon.
	UpdateResultFailed = "failed"

	// NodeAnnotationCordoned is on a Node that Machinist cordoned, as opposed to a user.
	NodeAnnotationCordoned = "machinist.dev/cordoned"

	// NodeTaintUninitialized (effect NoSchedule) is on a Node until the Node has the labels, annotations and taints of its
	// Machine.
	NodeTaintUninitialized = "machinist.dev/uninitialized"

	// NodeTaintOutdated (effect PreferNoSchedule) is on the Nodes of an old revision during a rollout.
	NodeTaintOutdated = "machinist.dev/outdated"
)

// Tags of an instance in its cloud.
const (
	// TagCluster is the cluster ID.
	TagCluster = "machinist-cluster"

	// TagMachineUID is the UID of the Machine.
	TagMachineUID = "machinist-machine-uid"

	// TagMachine is namespace/name of the Machine.
	TagMachine = "machinist-machine"
)

// Keys that cluster-autoscaler's clusterapi provider reads and writes when it runs with CAPI_GROUP=machinist.dev. It
// also uses AnnotationDeleteMachine, NodeAnnotationMachine and NodeAnnotationClusterNamespace.
const (
	// AutoscalerMinSizeAnnotation and AutoscalerMaxSizeAnnotation turn a MachineSet or MachineDeployment into a node
	// group. Their values are integers with 0 ≤ min ≤ max.
	AutoscalerMinSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMaxSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-max-size"

	// AutoscalerCapacityPrefix is the prefix of the annotations on a MachineSet or MachineDeployment that describe its
	// Nodes while there are none.
	AutoscalerCapacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"

	// AutoscalerCPUAnnotation and the following annotations each describe one property of a Node.
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

	// AutoscalerDeploymentNameLabel on a MachineSet is the name of the MachineDeployment that owns it.
	AutoscalerDeploymentNameLabel = "cluster.x-k8s.io/deployment-name"

	// AutoscalerRevisionAnnotation on a MachineSet of a MachineDeployment is its revision.
	AutoscalerRevisionAnnotation = "machinedeployment.clusters.x-k8s.io/revision"

	// NodeAnnotationScaleDownDisabled on a Node prevents cluster-autoscaler from removing it.
	NodeAnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
)

// NodeLabelExcludeFromLoadBalancers removes a Node from external load balancers while its Machine is being deleted.
const NodeLabelExcludeFromLoadBalancers = "node.kubernetes.io/exclude-from-external-load-balancers"

// Maximum lengths of names. Names become values of labels, and the names of sets and machines begin with those of their
// owners.
const (
	// MaxMachineDeploymentNameLength leaves room for -<template hash> and -<5 random characters>.
	MaxMachineDeploymentNameLength = 47

	// MaxTemplateHashLength is the maximum length of a template hash.
	MaxTemplateHashLength = 9

	// MaxMachineSetNameLength leaves room for -<5 random characters>.
	MaxMachineSetNameLength = 57

	// MaxMachineNameLength is the maximum length of the value of a label.
	MaxMachineNameLength = 63
)
