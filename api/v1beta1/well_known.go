package v1beta1

// The comment of a key ends with a paragraph that says on which objects the key is, who sets it, and which values it
// has. hack/reference writes docs/reference/labels-and-annotations.md from these comments.

// Finalizers.
const (
	// MachineFinalizer keeps a Machine until its instance is gone.
	//
	// On: Machine. Set by: the provider.
	MachineFinalizer = "machinist.dev/machine"

	// InUseFinalizer keeps an object that is still needed: a MachineClass, from the first Machine that uses it until no
	// Machine uses it; a Secret, while a class or a Machine of the inline form refers to it; and a Provider, while
	// Machines or such classes need its process.
	//
	// On: MachineClass, Secret, Provider. Set by: the provider, and the operator on a Provider.
	InUseFinalizer = "machinist.dev/in-use"
)

// Labels of Machinist's own objects. Unless values are listed, a label takes effect with any value.
const (
	// LabelTemplateHash is a hash of those parts of the template whose change starts a rollout.
	//
	// On: MachineSet, Machine. Set by: the manager.
	LabelTemplateHash = "machinist.dev/template-hash"

	// LabelMachineSet is the name of the MachineSet that owns the Machine.
	//
	// On: Machine. Set by: the manager.
	LabelMachineSet = "machinist.dev/machine-set"

	// LabelMachineDeployment is the name of the MachineDeployment.
	//
	// On: MachineSet, Machine. Set by: the manager.
	LabelMachineDeployment = "machinist.dev/machine-deployment"

	// LabelProvider is the name of the provider that serves the Machine.
	//
	// On: Machine. Set by: the manager, or the provider on a Machine that a user created.
	LabelProvider = "machinist.dev/provider"

	// LabelFreeze stops a MachineSet or MachineDeployment from creating machines. The manager ends only its own freeze.
	//
	// On: MachineSet, MachineDeployment. Set by: users, the manager, the migrator and machinist move.
	// Value: Overshoot (the manager), Moving (machinist move), Migration (the migrator), or any other value of a user.
	LabelFreeze = "machinist.dev/freeze"

	// FreezeMoving is the value of LabelFreeze on objects that are being moved to another control cluster.
	FreezeMoving = "Moving"

	// LabelSelectedForUpdate selects a Machine for an update in place, in a rollout with the strategy InPlace and the
	// orchestration Manual.
	//
	// On: Machine. Set by: users.
	LabelSelectedForUpdate = "machinist.dev/selected-for-update"

	// LabelInstalledBy is the name of the Provider for which the operator created the object.
	//
	// On: the objects of a provider process. Set by: the operator.
	LabelInstalledBy = "machinist.dev/installed-by"

	// LabelTypeVersion names the schema for which the Machine was written. A Machine with another value is not
	// created, updated or health checked, but can be deleted. A Machine without the label counts as current, unless
	// the provider runs with --require-type-version. The label is not part of the template hash.
	//
	// On: Machine, the template of a fleet. Set by: users, or the manager if the template has no such label.
	// Value: v1beta1.
	LabelTypeVersion = "machinist.dev/type-version"

	// TypeVersion is the value of LabelTypeVersion for the schema of this package.
	TypeVersion = Version

	// LabelSecretUse defines for what MachineClasses and Machines of its namespace may use the Secret or ConfigMap. A
	// Secret without the label is not read. Otherwise every user who may write a class or a Machine could put any Secret
	// of the namespace into the user data of an instance.
	//
	// On: Secret, ConfigMap. Set by: users.
	// Value: SecretUseCredentials, SecretUseUserData or SecretUseBoth.
	LabelSecretUse = "machinist.dev/secret-use"
)

// Values of LabelSecretUse.
const (
	SecretUseCredentials = "credentials"
	SecretUseUserData    = "user-data"
	SecretUseBoth        = "credentials-and-user-data"
)

// Annotations of Machinist's own objects. Unless values are listed, an annotation takes effect with any value.
const (
	// AnnotationDeleteMachine marks a Machine that its MachineSet deletes first when it is scaled down.
	//
	// On: Machine. Set by: users and cluster-autoscaler.
	AnnotationDeleteMachine = "machinist.dev/delete-machine"

	// AnnotationDeletePriority orders the Machines of a MachineSet. When the set is scaled down, Machines with a lower
	// priority are deleted first. The priority of a Machine without the annotation is 3.
	//
	// On: Machine. Set by: users.
	// Value: an integer.
	AnnotationDeletePriority = "machinist.dev/delete-priority"

	// DefaultDeletePriority is the priority of a Machine without AnnotationDeletePriority.
	DefaultDeletePriority = 3

	// AnnotationPaused stops everything that would change a Machine: driver calls, evictions, its deletion and its
	// remediation. The status of the Machine is still updated, and the Machine still counts as live.
	//
	// On: Machine. Set by: users, the migrator and machinist move.
	AnnotationPaused = "machinist.dev/paused"

	// AnnotationClusterAPIPaused has the same effect as AnnotationPaused.
	//
	// On: Machine. Set by: users.
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"

	// AnnotationSkipDrain makes the deletion of a Machine skip the drain of its Node.
	//
	// On: Machine. Set by: users.
	AnnotationSkipDrain = "machinist.dev/skip-drain"

	// AnnotationSkipRemediation exempts a Machine from remediation.
	//
	// On: Machine. Set by: users.
	AnnotationSkipRemediation = "machinist.dev/skip-remediation"

	// AnnotationRemediate requests the remediation of a Machine, whatever its health.
	//
	// On: Machine. Set by: users.
	AnnotationRemediate = "machinist.dev/remediate"

	// AnnotationDoNotDisrupt exempts a Machine from every voluntary disruption: rollouts, updates in place, expiry,
	// requested replacement and remediation. A scale-down deletes the Machine last. A deletion by a user is not prevented.
	//
	// On: Machine. Set by: users.
	// Value: the time (RFC 3339) at which the exemption ends, or anything else for an exemption without an end.
	AnnotationDoNotDisrupt = "machinist.dev/do-not-disrupt"

	// AnnotationReplace requests the replacement of a Machine. Another Machine is created first, and this Machine is
	// deleted when the other one is available.
	//
	// On: Machine. Set by: users, machinist replace, and the manager if the Machine is older than expireAfter.
	// Value: expired (the manager), or any other value.
	AnnotationReplace = "machinist.dev/replace"

	// AnnotationAllowVersionSkew permits the rollout of a kubelet version that Kubernetes does not support with the API
	// server of the target cluster. On every owner of machines, it turns off the warning about such a version.
	//
	// On: MachineDeployment, MachineSet, Machine. Set by: users.
	AnnotationAllowVersionSkew = "machinist.dev/allow-version-skew"

	// AnnotationPauseReason is the reason why a user paused a fleet, for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPauseReason = "machinist.dev/pause-reason"

	// AnnotationPausedBy is the user who paused a fleet, for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPausedBy = "machinist.dev/paused-by"

	// AnnotationRetry makes the provider try a refused or failed operation again at once. Every new value causes one try.
	// Without the annotation, the provider tries again when the next try is due.
	//
	// On: Machine. Set by: users.
	AnnotationRetry = "machinist.dev/retry"

	// AnnotationForceDelete deletes a Machine without a drain and without waiting for volumes, even if the drain has
	// already begun. If the cloud does not remove the instance, the Machine is removed without it. Orphan collection then
	// removes the instance later.
	//
	// On: Machine. Set by: users.
	AnnotationForceDelete = "machinist.dev/force-delete"

	// AnnotationPreserve preserves a Machine for inspection, while its set replaces it.
	//
	// On: Machine. Set by: users.
	// Value: PreserveNow, or PreserveWhenFailed to preserve the Machine when it becomes Failed.
	AnnotationPreserve = "machinist.dev/preserve"

	// PreserveNow is the value of AnnotationPreserve that preserves a Machine at once.
	PreserveNow = "now"

	// PreserveWhenFailed is the value of AnnotationPreserve that preserves a Machine when it becomes Failed.
	PreserveWhenFailed = "when-failed"

	// AnnotationPreservedUntil is the time at which a preserved Machine is deleted. A set never adopts or counts a Machine
	// with this annotation.
	//
	// On: Machine. Set by: the provider, and users who change the time.
	// Value: a time (RFC 3339).
	AnnotationPreservedUntil = "machinist.dev/preserved-until"

	// AnnotationPreservedFrom is the name of the MachineSet to which a preserved Machine belonged.
	//
	// On: Machine. Set by: the provider.
	AnnotationPreservedFrom = "machinist.dev/preserved-from"

	// AnnotationReleasedFrom is the UID of the MachineDeployment, or of the standalone MachineSet, whose set released the
	// Machine because its labels no longer matched. The Machine counts towards the hard limit on machines of that owner
	// until it is deleted or adopted.
	//
	// On: Machine. Set by: the manager.
	AnnotationReleasedFrom = "machinist.dev/released-from"

	// AnnotationUnfreeze ends the freeze of a MachineSet or MachineDeployment.
	//
	// On: MachineSet, MachineDeployment. Set by: users.
	AnnotationUnfreeze = "machinist.dev/unfreeze"

	// AnnotationAllowDeletion permits the deletion of a CustomResourceDefinition of this API group, which the admission
	// policy otherwise refuses. The deletion also deletes all objects of the kind, and the machines that they own.
	//
	// On: CustomResourceDefinition. Set by: users.
	// Value: true.
	AnnotationAllowDeletion = "machinist.dev/allow-deletion"

	// AnnotationRemoveOrphansUntil permits the removal of instances without a Machine although OrphanRemovalBlocked is
	// True, until the time in its value. It concerns only instances that are found with the class, and whose tags name the
	// namespace of the class, or a namespace in which no class finds them.
	//
	// On: MachineClass. Set by: users.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationRemoveOrphansUntil = "machinist.dev/remove-orphans-until"

	// AnnotationAdoptFromCluster is the cluster ID of a control cluster that was lost or from which a fleet was moved.
	// Machines of the class may adopt instances with the tags of that cluster and of a Machine with the same namespace and
	// name, if a list for the class covers them. The permission lasts until AnnotationAdoptFromClusterUntil. The processes
	// of the former cluster must not run any more, because otherwise two installations would manage the same instance.
	//
	// On: MachineClass. Set by: machinist restore, machinist move and machinist orphans adopt.
	AnnotationAdoptFromCluster = "machinist.dev/adopt-from-cluster"

	// AnnotationAdoptFromClusterUntil is the time until which AnnotationAdoptFromCluster is in effect.
	//
	// On: MachineClass. Set by: the same commands.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationAdoptFromClusterUntil = "machinist.dev/adopt-from-cluster-until"

	// AnnotationMovingTo is the cluster ID of the control cluster to which the object is being moved, until it is deleted
	// in this one. A Machine with it was paused by the move, and a MachineSet or MachineDeployment was frozen by it
	// (FreezeMoving).
	//
	// On: all objects that are moved. Set by: machinist move.
	AnnotationMovingTo = "machinist.dev/moving-to-cluster"

	// AnnotationMovedTo is the cluster ID of the control cluster that has adopted the instance of the Machine. Only then
	// is the Machine deleted in this control cluster, without its instance.
	//
	// On: Machine. Set by: machinist move.
	AnnotationMovedTo = "machinist.dev/moved-to-cluster"

	// AnnotationMovedFrom is the cluster ID of the control cluster from which machinist move moved the object.
	//
	// On: all objects that were moved. Set by: machinist move.
	AnnotationMovedFrom = "machinist.dev/moved-from-cluster"

	// AnnotationRevision is the number of the revision.
	//
	// On: MachineSet, MachineDeployment. Set by: the manager.
	// Value: an integer.
	AnnotationRevision = "machinist.dev/revision"

	// AnnotationHashVersion is the version of the algorithm with which the template hash was calculated.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationHashVersion = "machinist.dev/hash-version"

	// AnnotationMoveTo orders a set to hand over machines to another set.
	//
	// On: MachineSet. Set by: the manager.
	// Value: <set>:<number of machines>.
	AnnotationMoveTo = "machinist.dev/move-to"

	// AnnotationReceiveFrom is the name of the set that hands over machines to this one.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationReceiveFrom = "machinist.dev/receive-from"
)

// Annotations with state of Machinist's controllers. Only these controllers set them, and communicate by them.
const (
	// AnnotationNoCreate stops a MachineSet from creating or adopting machines. With the strategy OnDelete, it is on the
	// sets of old revisions, so that a machine that a user deletes is replaced by a machine of the new revision.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationNoCreate = "machinist.dev/no-create"

	// AnnotationSizedFor is the number of replicas for which the sets of a MachineDeployment were last scaled. If it
	// differs from spec.replicas, a user or autoscaler has changed replicas since, and the sets are scaled in proportion.
	//
	// On: MachineSet (the newest one). Set by: the manager.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationExchangeSurge is the number of machines beyond replicas that the set of the current revision has because
	// machines are being replaced. The set uses it to find out which surplus machines are deleted because fewer are
	// wanted: no budget limits their deletion.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationExchangeSurge = "machinist.dev/exchange-surge"

	// AnnotationOutdated means that a MachineDeployment is replacing or updating the machines of the set step by step.
	// Until the annotation is removed, their Nodes have NodeTaintOutdated and NodeAnnotationScaleDownDisabled.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationOutdated = "machinist.dev/outdated"

	// AnnotationRolloutAfter is the rolloutAfter that had passed when the set was created. The machines of the set count
	// as newer than that time, whatever the clocks show.
	//
	// On: MachineSet. Set by: the manager.
	// Value: a time (RFC 3339).
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationRemediationRetry is on a Machine that replaces a failed or unhealthy one. It contains the number of
	// machines in a row that were replaced before it, and the UID of the last of them.
	//
	// On: Machine. Set by: the manager.
	// Value: <number>/<UID>.
	AnnotationRemediationRetry = "machinist.dev/remediation-retry"

	// AnnotationAppliedHash is a hash of what the operator applied. The operator uses it to avoid applying the same
	// content twice.
	//
	// On: the objects of a provider process. Set by: the operator.
	AnnotationAppliedHash = "machinist.dev/applied-hash"

	// AnnotationLastAppliedTemplate lists the keys that came from the template of the set. If a key is removed from the
	// template, it is therefore removed from the Machine, while keys that others added stay.
	//
	// On: Machine. Set by: the manager.
	AnnotationLastAppliedTemplate = "machinist.dev/last-applied-template"
)

// Keys on Nodes.
const (
	// NodeLabelMachine and NodeAnnotationMachine are the name of the Machine of a Node, for information only. Machinist
	// relies on status.nodeRef of the Machine.
	//
	// On: Node (a label and an annotation). Set by: the provider.
	NodeLabelMachine      = "machinist.dev/machine"
	NodeAnnotationMachine = "machinist.dev/machine"

	// NodeAnnotationClusterNamespace is the namespace of the Machine of a Node.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationClusterNamespace = "machinist.dev/cluster-namespace"

	// NodeAnnotationInstance identifies the instance of a Node by the cluster ID of the installation, the provider, the
	// class and the provider ID. If the Machine is lost, orphan collection finds the Node by this annotation.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationInstance = "machinist.dev/instance"

	// NodeAnnotationLastAppliedNodeTemplate is a fingerprint of what was last applied to a Node from spec.node. It
	// prevents an older request that arrives late from undoing a newer one. It proves nothing else, because other clients
	// that may write to the Node can change it. The applied keys are in status.nodeTemplate of the Machine.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationLastAppliedNodeTemplate = "machinist.dev/last-applied-node-template"

	// NodeAnnotationInstanceRemoved marks the Node of an instance without a Machine that is being removed. The Node is
	// deleted when the instance is gone.
	//
	// On: Node (an annotation). Set by: the provider.
	// Value: namespace/name of the object with whose credentials the instance was found.
	NodeAnnotationInstanceRemoved = "machinist.dev/instance-removed"

	// NodeAnnotationUpdateRequested requests that the agent on a Node updates the kubelet.
	//
	// On: Node (an annotation). Set by: the provider.
	// Value: the version of the kubelet.
	NodeAnnotationUpdateRequested = "machinist.dev/update-requested"

	// NodeAnnotationUpdateResult is the answer of the agent.
	//
	// On: Node (an annotation). Set by: the agent on the Node.
	// Value: UpdateResultSucceeded or UpdateResultFailed, the latter optionally followed by a colon and a reason.
	NodeAnnotationUpdateResult = "machinist.dev/update-result"

	// UpdateResultSucceeded is the value of NodeAnnotationUpdateResult after a successful update.
	UpdateResultSucceeded = "succeeded"

	// UpdateResultFailed is the value of NodeAnnotationUpdateResult after a failed update, or the part of the value before
	// the colon.
	UpdateResultFailed = "failed"

	// NodeAnnotationCordoned is on a Node that Machinist cordoned, as opposed to a user.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationCordoned = "machinist.dev/cordoned"

	// NodeTaintUninitialized is on a Node until the Node has the labels, annotations and taints of its Machine. Its effect
	// is NoSchedule.
	//
	// On: Node (a taint). Set by: user data, through the configuration of the kubelet.
	NodeTaintUninitialized = "machinist.dev/uninitialized"

	// NodeTaintOutdated is on the Nodes of an old revision during a rollout. Its effect is PreferNoSchedule.
	//
	// On: Node (a taint). Set by: the provider.
	NodeTaintOutdated = "machinist.dev/outdated"

	// NodeAnnotationScaleDownDisabled prevents cluster-autoscaler from removing the Node.
	//
	// On: Node (an annotation). Set by: the provider during a rollout, and users.
	// Value: true.
	NodeAnnotationScaleDownDisabled = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

	// NodeLabelExcludeFromLoadBalancers removes a Node from external load balancers while its Machine is being deleted.
	//
	// On: Node (a label). Set by: the provider.
	NodeLabelExcludeFromLoadBalancers = "node.kubernetes.io/exclude-from-external-load-balancers"
)

// Tags of an instance in its cloud.
const (
	// TagCluster is the cluster ID.
	//
	// On: the instance. Set by: the provider.
	TagCluster = "machinist-cluster"

	// TagMachineUID is the UID of the Machine.
	//
	// On: the instance. Set by: the provider.
	TagMachineUID = "machinist-machine-uid"

	// TagMachine is namespace/name of the Machine.
	//
	// On: the instance. Set by: the provider.
	TagMachine = "machinist-machine"
)

// Keys of cluster-autoscaler. Its clusterapi provider reads and writes them when it runs with CAPI_GROUP=machinist.dev.
// It also uses AnnotationDeleteMachine, NodeAnnotationMachine and NodeAnnotationClusterNamespace.
const (
	// AutoscalerMinSizeAnnotation and AutoscalerMaxSizeAnnotation turn a MachineSet or MachineDeployment into a node
	// group.
	//
	// On: MachineDeployment, MachineSet. Set by: users.
	// Value: an integer, with 0 ≤ min ≤ max.
	AutoscalerMinSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMaxSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-max-size"

	// AutoscalerCapacityPrefix is the prefix of the annotations on a MachineSet or MachineDeployment that describe its
	// Nodes while there are none.
	AutoscalerCapacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"

	// AutoscalerCPUAnnotation is one of the annotations that describe a Node of the group while there is none. Each
	// describes one property.
	//
	// On: MachineDeployment, MachineSet. Set by: the manager, and users.
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

	// AutoscalerDeploymentNameLabel is the name of the MachineDeployment that owns the set.
	//
	// On: MachineSet. Set by: the manager.
	AutoscalerDeploymentNameLabel = "cluster.x-k8s.io/deployment-name"

	// AutoscalerRevisionAnnotation is the revision of a MachineSet of a MachineDeployment.
	//
	// On: MachineSet. Set by: the manager.
	AutoscalerRevisionAnnotation = "machinedeployment.clusters.x-k8s.io/revision"
)

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
