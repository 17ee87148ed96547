package v1beta1

// The comment of each key ends with a paragraph that lists the objects that may have the key, the clients that set it,
// and its values. The program hack/reference generates docs/reference/labels-and-annotations.md from these comments.

// Finalizers.
const (
	// MachineFinalizer prevents the removal of a deleted Machine until its instance no longer exists.
	//
	// On: Machine. Set by: the provider.
	MachineFinalizer = "machinist.dev/machine"

	// InUseFinalizer prevents the removal of a deleted object that is still needed: a MachineClass while Machines use it,
	// a Secret while a class or a Machine without a class refers to it, and a Provider while Machines or classes need its
	// process.
	//
	// On: MachineClass, Secret, Provider. Set by: the provider, and the operator on a Provider.
	InUseFinalizer = "machinist.dev/in-use"
)

// Labels of Machinist's own objects. If no values are listed, the label has the same effect with every value.
const (
	// LabelTemplateHash is a hash of the template. The hash covers only fields whose change starts a rollout.
	//
	// On: MachineSet, Machine. Set by: the manager.
	LabelTemplateHash = "machinist.dev/template-hash"

	// LabelMachineSet is the name of the MachineSet that owns the Machine.
	//
	// On: Machine. Set by: the manager.
	LabelMachineSet = "machinist.dev/machine-set"

	// LabelMachineDeployment is the name of the MachineDeployment to which the object belongs.
	//
	// On: MachineSet, Machine. Set by: the manager.
	LabelMachineDeployment = "machinist.dev/machine-deployment"

	// LabelProvider is the name of the provider that serves the Machine.
	//
	// On: Machine. Set by: the manager, or the provider on a Machine that a user created.
	LabelProvider = "machinist.dev/provider"

	// LabelFreeze stops a MachineSet or MachineDeployment from creating machines. The manager removes the label only if
	// its value is Overshoot.
	//
	// On: MachineSet, MachineDeployment. Set by: users, the manager, the migrator and machinist move.
	// Value: Overshoot (set by the manager), Moving (set by machinist move), Migration (set by the migrator), or any other
	// value (set by a user).
	LabelFreeze = "machinist.dev/freeze"

	// FreezeMoving is the value of LabelFreeze on objects that are being moved to another control cluster.
	FreezeMoving = "Moving"

	// LabelSelectedForUpdate selects a Machine that will be updated in place. The label has an effect only in a rollout
	// with the strategy InPlace and the orchestration Manual.
	//
	// On: Machine. Set by: users.
	LabelSelectedForUpdate = "machinist.dev/selected-for-update"

	// LabelInstalledBy is the name of the Provider for which the operator created the object.
	//
	// On: the objects of a provider process. Set by: the operator.
	LabelInstalledBy = "machinist.dev/installed-by"

	// LabelTypeVersion names the version of the API for which the Machine was written. If the value is not v1beta1,
	// Machinist neither creates an instance for the Machine nor updates the Machine or checks its health. The Machine can
	// still be deleted. A Machine without the label is treated like a Machine of the current version, unless the provider
	// runs with --require-type-version. The label is not part of the template hash.
	//
	// On: Machine, the template of a fleet. Set by: users, or the manager if the template has no such label.
	// Value: v1beta1.
	LabelTypeVersion = "machinist.dev/type-version"

	// TypeVersion is the value of LabelTypeVersion for the schema of this package.
	TypeVersion = Version

	// LabelSecretUse lists the purposes for which MachineClasses and Machines of the same namespace may use a Secret or
	// ConfigMap. Machinist does not read a Secret without the label. Otherwise, every user who may write a class or a
	// Machine could put any Secret of the namespace into the user data of an instance.
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

// Annotations of Machinist's own objects. If no values are listed, the annotation has the same effect with every value.
const (
	// AnnotationDeleteMachine marks a Machine that its MachineSet deletes first when the set is scaled down.
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

	// AnnotationPaused pauses a Machine. For a paused Machine, Machinist makes no driver calls and evicts no pods. It
	// neither deletes nor remediates the Machine. Machinist still updates the status of the Machine, and the set still
	// counts the Machine.
	//
	// On: Machine. Set by: users, the migrator and machinist move.
	AnnotationPaused = "machinist.dev/paused"

	// AnnotationClusterAPIPaused has the same effect as AnnotationPaused.
	//
	// On: Machine. Set by: users.
	AnnotationClusterAPIPaused = "cluster.x-k8s.io/paused"

	// AnnotationSkipDrain skips the drain of the Node when the Machine is deleted.
	//
	// On: Machine. Set by: users.
	AnnotationSkipDrain = "machinist.dev/skip-drain"

	// AnnotationSkipRemediation exempts a Machine from remediation.
	//
	// On: Machine. Set by: users.
	AnnotationSkipRemediation = "machinist.dev/skip-remediation"

	// AnnotationRemediate requests the remediation of a Machine, even if the Machine is healthy.
	//
	// On: Machine. Set by: users.
	AnnotationRemediate = "machinist.dev/remediate"

	// AnnotationDoNotDisrupt exempts a Machine from every voluntary disruption: rollouts, updates in place, expiry,
	// requested replacements and remediation. A scale-down deletes the Machine last. Users can still delete the Machine.
	//
	// On: Machine. Set by: users.
	// Value: the time (RFC 3339) at which the exemption ends; with any other value the exemption does not end.
	AnnotationDoNotDisrupt = "machinist.dev/do-not-disrupt"

	// AnnotationReplace requests the replacement of a Machine. The set first creates another Machine. When the new Machine
	// is available, the set deletes the annotated Machine.
	//
	// On: Machine. Set by: users, machinist replace, and the manager if the Machine is older than expireAfter.
	// Value: expired (set by the manager), or any other value (set by a user).
	AnnotationReplace = "machinist.dev/replace"

	// AnnotationAllowVersionSkew permits the rollout of a kubelet version that Kubernetes does not support together with
	// the version of the target cluster's API server. It also turns off the warning about such a version.
	//
	// On: MachineDeployment, MachineSet, Machine. Set by: users.
	AnnotationAllowVersionSkew = "machinist.dev/allow-version-skew"

	// AnnotationPauseReason is the reason why a user paused a fleet. It is only for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPauseReason = "machinist.dev/pause-reason"

	// AnnotationPausedBy is the name of the user who paused a fleet. It is only for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPausedBy = "machinist.dev/paused-by"

	// AnnotationRetry makes the provider immediately retry an operation that was refused or failed. Every new value causes
	// one retry. Without the annotation, the provider waits until the next scheduled retry.
	//
	// On: Machine. Set by: users.
	AnnotationRetry = "machinist.dev/retry"

	// AnnotationForceDelete deletes a Machine without a drain and without waiting for volumes, even if the drain has
	// already begun. If the cloud does not remove the instance, the Machine is removed anyway. Orphan collection removes
	// the instance later.
	//
	// On: Machine. Set by: users.
	AnnotationForceDelete = "machinist.dev/force-delete"

	// AnnotationPreserve keeps a Machine for inspection. Its set creates a replacement.
	//
	// On: Machine. Set by: users.
	// Value: PreserveNow to preserve the Machine immediately, or PreserveWhenFailed to preserve it when its phase becomes
	// Failed.
	AnnotationPreserve = "machinist.dev/preserve"

	// PreserveNow is the value of AnnotationPreserve that preserves a Machine immediately.
	PreserveNow = "now"

	// PreserveWhenFailed is the value of AnnotationPreserve that preserves a Machine when its phase becomes Failed.
	PreserveWhenFailed = "when-failed"

	// AnnotationPreservedUntil is the time at which a preserved Machine is deleted. MachineSets neither adopt nor count a
	// Machine with this annotation.
	//
	// On: Machine. Set by: the provider; users may change the time.
	// Value: a time (RFC 3339).
	AnnotationPreservedUntil = "machinist.dev/preserved-until"

	// AnnotationPreservedFrom is the name of the MachineSet to which a preserved Machine belonged.
	//
	// On: Machine. Set by: the provider.
	AnnotationPreservedFrom = "machinist.dev/preserved-from"

	// AnnotationReleasedFrom is the UID of the former owner of the Machine: a MachineDeployment, or a MachineSet without a
	// MachineDeployment. The set released the Machine because the labels of the Machine no longer matched the selector.
	// Until the Machine is deleted or adopted, it counts toward the hard limit on the number of machines of that owner.
	//
	// On: Machine. Set by: the manager.
	AnnotationReleasedFrom = "machinist.dev/released-from"

	// AnnotationUnfreeze ends the freeze of a MachineSet or MachineDeployment.
	//
	// On: MachineSet, MachineDeployment. Set by: users.
	AnnotationUnfreeze = "machinist.dev/unfreeze"

	// AnnotationAllowDeletion permits the deletion of a CustomResourceDefinition of this API group, which the admission
	// policy otherwise refuses. Kubernetes then also deletes all objects of that kind, and the Machines that these objects
	// own.
	//
	// On: CustomResourceDefinition. Set by: users.
	// Value: true.
	AnnotationAllowDeletion = "machinist.dev/allow-deletion"

	// AnnotationRemoveOrphansUntil permits the removal of instances without a Machine until the given time, even while
	// OrphanRemovalBlocked is True. The permission applies only to instances that the provider finds with the credentials
	// of this class. The tags of such an instance must name the namespace of the class, or a namespace in which no class
	// finds the instance.
	//
	// On: MachineClass. Set by: users.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationRemoveOrphansUntil = "machinist.dev/remove-orphans-until"

	// AnnotationAdoptFromCluster is the cluster ID of another control cluster, which was lost or from which a fleet was
	// moved. A Machine of the class may adopt an instance whose tags contain that cluster ID and the namespace and name of
	// the Machine. The provider's list of instances for the class must contain the instance. The permission ends at the
	// time in AnnotationAdoptFromClusterUntil. The processes of the other control cluster must be stopped, because
	// otherwise two installations would manage the same instance.
	//
	// On: MachineClass. Set by: machinist restore, machinist move and machinist orphans adopt.
	AnnotationAdoptFromCluster = "machinist.dev/adopt-from-cluster"

	// AnnotationAdoptFromClusterUntil is the time at which the permission of AnnotationAdoptFromCluster ends.
	//
	// On: MachineClass. Set by: the same commands.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationAdoptFromClusterUntil = "machinist.dev/adopt-from-cluster-until"

	// AnnotationMovingTo is the cluster ID of the control cluster to which machinist move is moving the object. The
	// annotation remains until the object is deleted in the old cluster. The move has paused each Machine that has the
	// annotation, and has frozen each MachineSet and MachineDeployment that has it (FreezeMoving).
	//
	// On: all objects that are moved. Set by: machinist move.
	AnnotationMovingTo = "machinist.dev/moving-to-cluster"

	// AnnotationMovedTo is the cluster ID of the control cluster that has adopted the instance of the Machine. When a
	// Machine has this annotation, the old control cluster deletes the Machine without its instance.
	//
	// On: Machine. Set by: machinist move.
	AnnotationMovedTo = "machinist.dev/moved-to-cluster"

	// AnnotationMovedFrom is the cluster ID of the control cluster from which machinist move moved the object.
	//
	// On: all objects that were moved. Set by: machinist move.
	AnnotationMovedFrom = "machinist.dev/moved-from-cluster"

	// AnnotationRevision is the number of the revision of the MachineDeployment.
	//
	// On: MachineSet, MachineDeployment. Set by: the manager.
	// Value: an integer.
	AnnotationRevision = "machinist.dev/revision"

	// AnnotationHashVersion is the version of the algorithm with which the template hash was calculated.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationHashVersion = "machinist.dev/hash-version"

	// AnnotationMoveTo tells a set to hand over machines to another set.
	//
	// On: MachineSet. Set by: the manager.
	// Value: <name of the set>:<number of machines>.
	AnnotationMoveTo = "machinist.dev/move-to"

	// AnnotationReceiveFrom is the name of the set that hands over machines to this set.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationReceiveFrom = "machinist.dev/receive-from"
)

// Annotations with state of Machinist's controllers. The controllers store state in these annotations. Other clients
// must not set them.
const (
	// AnnotationNoCreate stops a MachineSet from creating or adopting machines. With the strategy OnDelete, the sets of
	// old revisions have this annotation. Therefore, if a user deletes a machine of such a set, the set of the new
	// revision creates the replacement.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationNoCreate = "machinist.dev/no-create"

	// AnnotationSizedFor is the value of the MachineDeployment's spec.replicas when its sets were last scaled. If
	// spec.replicas differs from the annotation, a user or autoscaler has scaled the deployment. The manager then scales
	// all sets in proportion.
	//
	// On: MachineSet (the newest one). Set by: the manager.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationExchangeSurge is the number of additional machines that the set of the current revision has because
	// replacements are created before machines are deleted. Machines in excess of this number are surplus because the
	// fleet was scaled down, so no budget limits their deletion.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationExchangeSurge = "machinist.dev/exchange-surge"

	// AnnotationOutdated marks a set of an old revision whose machines a rollout is replacing or updating. As long as the
	// set has the annotation, the Nodes of its machines have NodeTaintOutdated and NodeAnnotationScaleDownDisabled.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationOutdated = "machinist.dev/outdated"

	// AnnotationRolloutAfter is the value that rolloutAfter of the MachineDeployment had when the set was created. The set
	// has the annotation only if that time had already passed. All machines of the set are regarded as created after that
	// time, even if the clocks of the control cluster differ.
	//
	// On: MachineSet. Set by: the manager.
	// Value: a time (RFC 3339).
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationRemediationRetry marks a Machine that replaces a failed or unhealthy Machine. It contains the number of
	// consecutive Machines that were replaced before this Machine, and the UID of the last of these Machines.
	//
	// On: Machine. Set by: the manager.
	// Value: <number>/<UID>.
	AnnotationRemediationRetry = "machinist.dev/remediation-retry"

	// AnnotationAppliedHash is a hash of the content that the operator last applied. The operator compares the hash to
	// find out whether the content that it wants to apply has changed.
	//
	// On: the objects of a provider process. Set by: the operator.
	AnnotationAppliedHash = "machinist.dev/applied-hash"

	// AnnotationLastAppliedTemplate lists the keys that came from the template of the set. If a key is removed from the
	// template, the manager removes it from the Machine. The manager does not remove keys that other clients added to the
	// Machine.
	//
	// On: Machine. Set by: the manager.
	AnnotationLastAppliedTemplate = "machinist.dev/last-applied-template"
)

// Keys on Nodes.
const (
	// NodeLabelMachine and NodeAnnotationMachine are the name of the Machine of a Node. They are only for information: to
	// find the Node of a Machine, Machinist uses status.nodeRef of the Machine.
	//
	// On: Node (a label and an annotation). Set by: the provider.
	NodeLabelMachine      = "machinist.dev/machine"
	NodeAnnotationMachine = "machinist.dev/machine"

	// NodeAnnotationClusterNamespace is the namespace of the Machine of a Node.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationClusterNamespace = "machinist.dev/cluster-namespace"

	// NodeAnnotationInstance identifies the instance of a Node. It contains the cluster ID of the installation, the
	// provider, the class and the provider ID. If the Machine is lost, orphan collection finds the Node by this
	// annotation.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationInstance = "machinist.dev/instance"

	// NodeAnnotationLastAppliedNodeTemplate is a hash of the labels, annotations and taints that the provider last applied
	// to a Node from spec.node. A delayed older request does not match the annotation, and therefore cannot undo a newer
	// request. The provider does not use the annotation for anything else, because every client that may write to the Node
	// can change it. The applied keys are in status.nodeTemplate of the Machine.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationLastAppliedNodeTemplate = "machinist.dev/last-applied-node-template"

	// NodeAnnotationInstanceRemoved marks a Node whose instance has no Machine and is being removed. The provider deletes
	// the Node when the instance no longer exists.
	//
	// On: Node (an annotation). Set by: the provider.
	// Value: namespace/name of the object whose credentials the provider used to find the instance.
	NodeAnnotationInstanceRemoved = "machinist.dev/instance-removed"

	// NodeAnnotationUpdateRequested asks the agent on a Node to update the kubelet.
	//
	// On: Node (an annotation). Set by: the provider.
	// Value: the version of the kubelet.
	NodeAnnotationUpdateRequested = "machinist.dev/update-requested"

	// NodeAnnotationUpdateResult is the result that the agent reports for an update of the kubelet.
	//
	// On: Node (an annotation). Set by: the agent on the Node.
	// Value: UpdateResultSucceeded or UpdateResultFailed; a colon and a reason may follow UpdateResultFailed.
	NodeAnnotationUpdateResult = "machinist.dev/update-result"

	// UpdateResultSucceeded is the value of NodeAnnotationUpdateResult after a successful update.
	UpdateResultSucceeded = "succeeded"

	// UpdateResultFailed is the value of NodeAnnotationUpdateResult after a failed update. A colon and a reason may follow
	// this value.
	UpdateResultFailed = "failed"

	// NodeAnnotationCordoned marks a Node that Machinist has cordoned. Machinist does not uncordon a Node that a user has
	// cordoned.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationCordoned = "machinist.dev/cordoned"

	// NodeTaintUninitialized is a taint of a new Node. The provider removes it when the Node has the labels, annotations
	// and taints of its Machine. Its effect is NoSchedule.
	//
	// On: Node (a taint). Set by: user data, through the configuration of the kubelet.
	NodeTaintUninitialized = "machinist.dev/uninitialized"

	// NodeTaintOutdated is a taint of the Nodes of an old revision during a rollout. Its effect is PreferNoSchedule.
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

// Keys of cluster-autoscaler. If cluster-autoscaler runs with CAPI_GROUP=machinist.dev, its provider clusterapi reads
// and writes these keys. It also uses AnnotationDeleteMachine, NodeAnnotationMachine and
// NodeAnnotationClusterNamespace.
const (
	// AutoscalerMinSizeAnnotation and AutoscalerMaxSizeAnnotation are the minimum and maximum size of a MachineSet or
	// MachineDeployment. With both annotations, the object is a node group of cluster-autoscaler.
	//
	// On: MachineDeployment, MachineSet. Set by: users.
	// Value: an integer of at least 0; the minimum is not greater than the maximum.
	AutoscalerMinSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMaxSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-max-size"

	// AutoscalerCapacityPrefix is the prefix of annotations on a MachineSet or MachineDeployment. While the group has no
	// Node, these annotations tell cluster-autoscaler the properties of its future Nodes.
	AutoscalerCapacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"

	// AutoscalerCPUAnnotation is one of the annotations that describe the future Nodes of a node group. cluster-autoscaler
	// uses them while the group has no Node. Each annotation describes one property.
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

	// AutoscalerRevisionAnnotation is the number of the revision of a MachineSet that belongs to a MachineDeployment.
	//
	// On: MachineSet. Set by: the manager.
	AutoscalerRevisionAnnotation = "machinedeployment.clusters.x-k8s.io/revision"
)

// Maximum lengths of names. Names are also used as values of labels. The name of a set or machine begins with the name
// of its owner.
const (
	// MaxMachineDeploymentNameLength is the maximum length of the name of a MachineDeployment. The name of each set adds
	// -<template hash> to this name, and the name of each machine also adds -<5 random characters>.
	MaxMachineDeploymentNameLength = 47

	// MaxTemplateHashLength is the maximum length of a template hash.
	MaxTemplateHashLength = 9

	// MaxMachineSetNameLength is the maximum length of the name of a MachineSet. The name of each machine adds -<5 random
	// characters> to this name.
	MaxMachineSetNameLength = 57

	// MaxMachineNameLength is the maximum length of the name of a Machine, because the value of a label cannot be longer.
	MaxMachineNameLength = 63
)
