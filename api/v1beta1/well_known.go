package v1beta1

// The last paragraph of each comment lists the objects that may have the key, the clients that set it, and its values.
// The program hack/reference generates docs/reference/labels-and-annotations.md from these comments.

// Finalizers.
const (
	// MachineFinalizer prevents the removal of a deleted Machine until its instance no longer exists.
	//
	// On: Machine. Set by: the provider.
	MachineFinalizer = "machinist.dev/machine"

	// InUseFinalizer prevents the removal of a deleted object that is still needed. Machines need their MachineClass.
	// Classes, and Machines without a class, need their Secrets. Machines and classes need their Provider.
	//
	// On: MachineClass, Secret, Provider. Set by: the provider, and the operator on a Provider.
	InUseFinalizer = "machinist.dev/in-use"
)

// Labels of Machinist's own objects. If no values are listed, the label has the same effect with every value.
const (
	// LabelTemplateHash is a hash of the template fields whose change starts a rollout.
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

	// LabelPlacementDomain is the name of the domain in spec.placement to which the Machine belongs.
	//
	// On: Machine. Set by: the manager.
	LabelPlacementDomain = "machinist.dev/placement-domain"

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

	// LabelSelectedForUpdate selects a Machine for an update in place. The label has an effect only with the strategy
	// InPlace and the orchestration Manual.
	//
	// On: Machine. Set by: users.
	LabelSelectedForUpdate = "machinist.dev/selected-for-update"

	// LabelInstalledBy is the name of the Provider for which the operator created the object.
	//
	// On: the objects of a provider process. Set by: the operator.
	LabelInstalledBy = "machinist.dev/installed-by"

	// LabelTypeVersion names the API version for which the Machine was written. If the value is not v1beta1, Machinist
	// creates no instance, makes no updates and does not check the health of the Machine. The Machine can still be
	// deleted. A missing label means the current version, unless the provider runs with --require-type-version. The
	// label is not part of the template hash.
	//
	// On: Machine, the template of a fleet. Set by: users, or the manager if the template has no such label.
	// Value: v1beta1.
	LabelTypeVersion = "machinist.dev/type-version"

	// TypeVersion is the value of LabelTypeVersion for the schema of this package.
	TypeVersion = Version

	// LabelSecretUse lists the purposes for which MachineClasses and Machines of the same namespace may use a Secret or
	// ConfigMap. Machinist does not read a Secret without the label. Without this rule, a user who may create Machines
	// could read any Secret of the namespace: the user data of an instance could include the Secret.
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
	// AnnotationDeleteMachine marks a Machine that its MachineSet deletes first in a scale-down.
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

	// AnnotationPaused pauses a Machine. Machinist makes no driver calls for the Machine, evicts no pods, and neither
	// deletes nor remediates the Machine. Machinist still updates its status, and its set still counts it.
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

	// AnnotationHibernated marks a Machine that was stopped because its set is hibernated. The set starts the machine when
	// the hibernation ends. A machine that a user had stopped before does not get the annotation and stays stopped.
	//
	// On: Machine. Set by: the manager.
	AnnotationHibernated = "machinist.dev/hibernated"

	// AnnotationRemediate requests the remediation of a Machine, even if the Machine is healthy.
	//
	// On: Machine. Set by: users.
	AnnotationRemediate = "machinist.dev/remediate"

	// AnnotationDoNotDisrupt exempts a Machine from rollouts, updates in place, expiry, requested replacements and
	// remediation. A scale-down deletes the Machine last. Users can still delete the Machine.
	//
	// On: Machine. Set by: users.
	// Value: the time (RFC 3339) at which the exemption ends; with any other value the exemption does not end.
	AnnotationDoNotDisrupt = "machinist.dev/do-not-disrupt"

	// AnnotationReplace requests the replacement of a Machine. The set creates another Machine and deletes the
	// annotated Machine when the new Machine is available.
	//
	// On: Machine. Set by: users, machinist replace, and the manager if the Machine is older than expireAfter.
	// Value: expired (set by the manager), or any other value (set by a user).
	AnnotationReplace = "machinist.dev/replace"

	// AnnotationReboot requests a reboot of the Machine's instance. The provider reboots the instance once for each new
	// value. Only the first 256 characters of the value count.
	//
	// On: Machine. Set by: users, machinist reboot, and the manager if a health check reboots machines.
	// Value: a text that starts with remediation- (set by the manager), or any other value (set by a user).
	AnnotationReboot = "machinist.dev/reboot"

	// AnnotationAllowVersionSkew permits the rollout of a kubelet version that the target cluster's API server does not
	// support. The annotation also turns off the warning about the unsupported version.
	//
	// On: MachineDeployment, MachineSet, Machine. Set by: users.
	AnnotationAllowVersionSkew = "machinist.dev/allow-version-skew"

	// AnnotationPauseReason is the reason why a user paused a fleet. The reason is only for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPauseReason = "machinist.dev/pause-reason"

	// AnnotationPausedBy is the name of the user who paused a fleet. The name is only for information.
	//
	// On: MachineDisruptionBudget. Set by: machinist pause.
	AnnotationPausedBy = "machinist.dev/paused-by"

	// AnnotationRetry makes the provider immediately retry an operation that was refused or failed. Every new value
	// causes one retry. Without the annotation, the provider waits until the next scheduled retry.
	//
	// On: Machine. Set by: users.
	AnnotationRetry = "machinist.dev/retry"

	// AnnotationForceDelete deletes a Machine without a drain and without waiting for volumes, even if the drain has
	// already begun. If the cloud does not remove the instance, the Machine is removed anyway. Orphan collection
	// removes the instance later.
	//
	// On: Machine. Set by: users.
	AnnotationForceDelete = "machinist.dev/force-delete"

	// AnnotationPreserve keeps a Machine for inspection. The set of the Machine creates a replacement.
	//
	// On: Machine. Set by: users.
	// Value: PreserveNow to preserve the Machine immediately, or PreserveWhenFailed to preserve it when its phase becomes
	// Failed.
	AnnotationPreserve = "machinist.dev/preserve"

	// PreserveNow is the value of AnnotationPreserve that preserves a Machine immediately.
	PreserveNow = "now"

	// PreserveWhenFailed is the value of AnnotationPreserve that preserves a Machine when its phase becomes Failed.
	PreserveWhenFailed = "when-failed"

	// AnnotationPreservedUntil is the time at which a preserved Machine is deleted. MachineSets neither adopt nor count
	// a Machine with this annotation.
	//
	// On: Machine. Set by: the provider; users may change the time.
	// Value: a time (RFC 3339).
	AnnotationPreservedUntil = "machinist.dev/preserved-until"

	// AnnotationPreservedFrom is the name of the MachineSet to which a preserved Machine belonged.
	//
	// On: Machine. Set by: the provider.
	AnnotationPreservedFrom = "machinist.dev/preserved-from"

	// AnnotationReleasedFrom is the UID of the MachineDeployment or standalone MachineSet that owned the Machine. The
	// set released the Machine because the labels of the Machine no longer matched the selector. Until the Machine is
	// deleted or adopted, the Machine counts toward the former owner's hard limit on the number of machines.
	//
	// On: Machine. Set by: the manager.
	AnnotationReleasedFrom = "machinist.dev/released-from"

	// AnnotationUnfreeze ends the freeze of a MachineSet or MachineDeployment.
	//
	// On: MachineSet, MachineDeployment. Set by: users.
	AnnotationUnfreeze = "machinist.dev/unfreeze"

	// AnnotationAllowDeletion permits the deletion of a CustomResourceDefinition of this API group. Without the
	// annotation, the admission policy refuses the deletion. Kubernetes then also deletes all objects of that kind, and
	// the Machines that these objects own.
	//
	// On: CustomResourceDefinition. Set by: users.
	// Value: true.
	AnnotationAllowDeletion = "machinist.dev/allow-deletion"

	// AnnotationRemoveOrphansUntil permits the removal of instances without a Machine until the given time, even
	// while OrphanRemovalBlocked is True. The permission covers the instances that the provider finds with the
	// credentials of this class. The tags of such an instance must name the namespace of the class. The tags may also
	// name another namespace if no class of that namespace finds the instance.
	//
	// On: MachineClass. Set by: users.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationRemoveOrphansUntil = "machinist.dev/remove-orphans-until"

	// AnnotationAdoptFromCluster is the cluster ID of another control cluster that was lost or from which a fleet was
	// moved. A Machine of the class may adopt an instance whose tags contain this cluster ID, the Machine's namespace
	// and the Machine's name. The provider's list of instances for the class must contain the instance. The permission
	// ends at the time in AnnotationAdoptFromClusterUntil. Stop the processes of the other control cluster first.
	// Otherwise two installations would manage the same instance.
	//
	// On: MachineClass. Set by: machinist restore, machinist move and machinist orphans adopt.
	AnnotationAdoptFromCluster = "machinist.dev/adopt-from-cluster"

	// AnnotationAdoptFromClusterUntil is the time at which the permission of AnnotationAdoptFromCluster ends.
	//
	// On: MachineClass. Set by: the same commands.
	// Value: a time (RFC 3339) at most 24 hours in the future.
	AnnotationAdoptFromClusterUntil = "machinist.dev/adopt-from-cluster-until"

	// AnnotationMovingTo is the cluster ID of the control cluster to which machinist move is moving the object. The
	// annotation remains until the object is deleted in the old cluster. Machines with the annotation are paused.
	// MachineSets and MachineDeployments with the annotation are frozen (FreezeMoving).
	//
	// On: each object that machinist move is moving. Set by: machinist move.
	AnnotationMovingTo = "machinist.dev/moving-to-cluster"

	// AnnotationMovedTo is the cluster ID of the control cluster that has adopted the Machine's instance. The old
	// control cluster then deletes the Machine without its instance.
	//
	// On: Machine. Set by: machinist move.
	AnnotationMovedTo = "machinist.dev/moved-to-cluster"

	// AnnotationMovedFrom is the cluster ID of the control cluster from which machinist move moved the object.
	//
	// On: each object that machinist move has moved. Set by: machinist move.
	AnnotationMovedFrom = "machinist.dev/moved-from-cluster"

	// AnnotationRevision is the number of the revision of the MachineDeployment.
	//
	// On: MachineSet, MachineDeployment. Set by: the manager.
	// Value: an integer.
	AnnotationRevision = "machinist.dev/revision"

	// AnnotationPromoteRevision ends the pause of spec.strategy.rollingUpdate.pauseAfter for the revision with this
	// number (status.currentRevision). The number of another revision has no effect.
	//
	// On: MachineDeployment. Set by: machinist rollout promote, users.
	// Value: an integer.
	AnnotationPromoteRevision = "machinist.dev/promote-revision"

	// AnnotationHashVersion is the version of the algorithm with which the template hash was calculated.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationHashVersion = "machinist.dev/hash-version"

	// AnnotationMoveTo tells a set to hand over machines to another set.
	//
	// On: MachineSet. Set by: the manager.
	// Value: <name of the set>:<number of machines>.
	AnnotationMoveTo = "machinist.dev/move-to"

	// AnnotationReceiveFrom is the name of the MachineSet that hands over its machines to the annotated set.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationReceiveFrom = "machinist.dev/receive-from"
)

// Annotations with state of Machinist's controllers. Other clients must not set these annotations.
const (
	// AnnotationNoCreate stops a MachineSet from creating or adopting machines. With the strategy OnDelete, the sets of
	// old revisions have this annotation. If a user deletes a machine of an old revision, the set of the new revision
	// creates the replacement.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationNoCreate = "machinist.dev/no-create"

	// AnnotationSizedFor is the MachineDeployment's spec.replicas when its sets were last scaled. A different
	// spec.replicas means that a user or autoscaler has scaled the deployment. The manager then scales all sets in
	// proportion.
	//
	// On: the newest MachineSet of a MachineDeployment. Set by: the manager.
	AnnotationSizedFor = "machinist.dev/sized-for"

	// AnnotationExchangeSurge is the number of replacements that the set of the current revision has created in
	// advance, before the replaced machines are deleted. Additional surplus machines come from a scale-down, so no
	// budget limits their deletion.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationExchangeSurge = "machinist.dev/exchange-surge"

	// AnnotationPromoted marks the set of a revision whose rollout pauseAfter no longer stops. If the rollout undoes an
	// unfinished rollout, the value is rolled-back, and partition does not stop the rollout either.
	//
	// On: MachineSet. Set by: the manager.
	// Value: rolled-back or empty.
	AnnotationPromoted = "machinist.dev/promoted"

	// AnnotationVersionStep marks the set of a revision that is a step to a later version (spec.versionSteps of the
	// MachineDeployment). The next step begins after all machines of this set are available.
	//
	// On: MachineSet. Set by: the manager.
	// Value: empty.
	AnnotationVersionStep = "machinist.dev/version-step"

	// AnnotationOutdated marks a set of an old revision whose machines a rollout is replacing or updating. As long as
	// the set has the annotation, the Nodes of its machines have NodeTaintOutdated and NodeAnnotationScaleDownDisabled.
	//
	// On: MachineSet. Set by: the manager.
	AnnotationOutdated = "machinist.dev/outdated"

	// AnnotationRolloutAfter is the value that spec.rolloutAfter of the MachineDeployment had when the set was created.
	// The annotation is missing if the value was still in the future. Every machine of the set counts as created after
	// this time. The set therefore does not depend on differences between the clocks of the control cluster.
	//
	// On: MachineSet. Set by: the manager.
	// Value: a time (RFC 3339).
	AnnotationRolloutAfter = "machinist.dev/rollout-after"

	// AnnotationRemediationRetry marks a Machine that replaces a failed or unhealthy Machine. The annotation contains
	// the number of consecutive replacements up to this Machine, and the UID of the Machine that was replaced last.
	//
	// On: Machine. Set by: the manager.
	// Value: <number>/<UID>.
	AnnotationRemediationRetry = "machinist.dev/remediation-retry"

	// AnnotationAppliedHash is a hash of the content that the operator last applied. With the hash, the operator
	// detects changed content.
	//
	// On: the objects of a provider process. Set by: the operator.
	AnnotationAppliedHash = "machinist.dev/applied-hash"

	// AnnotationLastAppliedTemplate lists the keys that came from the template of the set. If a key is removed from
	// the template, the manager also removes the key from the Machine. The manager does not remove keys that other
	// clients added to the Machine.
	//
	// On: Machine. Set by: the manager.
	AnnotationLastAppliedTemplate = "machinist.dev/last-applied-template"
)

// Keys on Nodes.
const (
	// NodeLabelMachine and NodeAnnotationMachine are a label and an annotation with the name of the Node's Machine.
	// The label and the annotation are only for information. Machinist finds the Node of a Machine by status.nodeRef.
	//
	// On: Node (a label and an annotation). Set by: the provider.
	NodeLabelMachine      = "machinist.dev/machine"
	NodeAnnotationMachine = "machinist.dev/machine"

	// NodeAnnotationClusterNamespace is the namespace of the Machine of a Node.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationClusterNamespace = "machinist.dev/cluster-namespace"

	// NodeAnnotationInstance identifies the instance of a Node. The annotation contains the cluster ID of the
	// installation, the provider, the class and the provider ID. If the Machine is lost, orphan collection finds the
	// Node by this annotation.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationInstance = "machinist.dev/instance"

	// NodeAnnotationLastAppliedNodeTemplate is a hash of the labels, annotations and taints of spec.node that the
	// provider last applied to a Node. With the hash, a delayed older request cannot undo a newer request. The hash
	// has no other use, because every client that may write the Node can change it. The applied keys are in
	// status.nodeTemplate of the Machine.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationLastAppliedNodeTemplate = "machinist.dev/last-applied-node-template"

	// NodeAnnotationInstanceRemoved marks a Node whose instance has no Machine and is being removed. The provider
	// deletes the Node when the instance no longer exists.
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

	// UpdateResultFailed is the value of NodeAnnotationUpdateResult after a failed update. A colon and a reason may
	// follow this value.
	UpdateResultFailed = "failed"

	// NodeAnnotationCordoned marks a Node that Machinist has cordoned. Machinist does not uncordon a Node that a user
	// has cordoned.
	//
	// On: Node (an annotation). Set by: the provider.
	NodeAnnotationCordoned = "machinist.dev/cordoned"

	// NodeTaintUninitialized is a taint of a new Node. The provider removes the taint when the Node has the labels,
	// annotations and taints of its Machine. The effect of the taint is NoSchedule.
	//
	// On: Node (a taint). Set by: user data, through the configuration of the kubelet.
	NodeTaintUninitialized = "machinist.dev/uninitialized"

	// NodeTaintOutdated is a taint of the Nodes of an old revision during a rollout. The effect of the taint is
	// PreferNoSchedule.
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

// Keys on remediations, which the manager creates in the target cluster for an operator such as Medik8s.
const (
	// RemediationLabelMachineUID is the UID of the Machine for which the manager created the remediation.
	//
	// On: the remediation. Set by: the manager.
	RemediationLabelMachineUID = "machinist.dev/machine-uid"

	// RemediationAnnotation contains the cluster ID of the installation, the Machine and the UID of its Node. The manager
	// changes and deletes only remediations whose annotation contains its own cluster ID.
	//
	// On: the remediation. Set by: the manager.
	RemediationAnnotation = "machinist.dev/remediation"

	// RemediationAnnotationNodeName is the name of the Node, as the operators of Medik8s expect it.
	//
	// On: the remediation. Set by: the manager.
	RemediationAnnotationNodeName = "remediation.medik8s.io/node-name"

	// RemediationAnnotationTemplateName is the name of the template, as the operators of Medik8s expect it.
	//
	// On: the remediation. Set by: the manager.
	RemediationAnnotationTemplateName = "remediation.medik8s.io/template-name"

	// RemediationAnnotationTimedOut tells the operator that the remediation has exceeded its timeout.
	//
	// On: the remediation. Set by: the manager.
	// Value: a time (RFC 3339).
	RemediationAnnotationTimedOut = "remediation.medik8s.io/nhc-timed-out"
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
// and writes these keys. This provider also uses AnnotationDeleteMachine, NodeAnnotationMachine and
// NodeAnnotationClusterNamespace.
const (
	// AutoscalerMinSizeAnnotation and AutoscalerMaxSizeAnnotation are the minimum and maximum size of a MachineSet or
	// MachineDeployment. With both annotations, the object is a node group of cluster-autoscaler.
	//
	// On: MachineDeployment, MachineSet. Set by: users.
	// Value: an integer of at least 0; the minimum is not greater than the maximum.
	AutoscalerMinSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-min-size"
	AutoscalerMaxSizeAnnotation = "machinist.dev/cluster-api-autoscaler-node-group-max-size"

	// AutoscalerCapacityPrefix is the prefix of annotations that describe future Nodes to cluster-autoscaler while a
	// MachineSet or MachineDeployment has no Node.
	AutoscalerCapacityPrefix = "capacity.cluster-autoscaler.kubernetes.io/"

	// AutoscalerCPUAnnotation is one of the annotations that describe the future Nodes of a node group.
	// cluster-autoscaler uses these annotations while the group has no Node. Each annotation describes one property.
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
	// MaxMachineDeploymentNameLength is the maximum length of the name of a MachineDeployment. The name of a MachineSet
	// is the deployment's name and -<template hash>. The name of a Machine is the set's name and -<5 random
	// characters>.
	MaxMachineDeploymentNameLength = 47

	// MaxTemplateHashLength is the maximum length of a template hash.
	MaxTemplateHashLength = 9

	// MaxMachineSetNameLength is the maximum length of the name of a MachineSet. The name of a machine adds -<5 random
	// characters>.
	MaxMachineSetNameLength = 57

	// MaxMachineNameLength is the maximum length of the name of a Machine, because the value of a label cannot be
	// longer.
	MaxMachineNameLength = 63
)
