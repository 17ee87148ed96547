package v1beta1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Default values of a MachineDeployment, for fields that the spec does not set.
const (
	DefaultMaxSurge                    = 1
	DefaultMaxUnavailable              = 0
	DefaultInPlaceMaxUnavailable       = 1
	DefaultMaxInFlight                 = 1
	DefaultRevisionHistoryLimit  int32 = 10
	DefaultProgressDeadline            = 10 * time.Minute
)

// MachineDeploymentSpec is the desired number and kind of machines, and how they are replaced when they change.
//
// +kubebuilder:validation:XValidation:rule="self.selector == oldSelf.selector",message="selector is immutable",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",message="selector must not be empty",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="!has(self.selector.matchLabels) || (has(self.template.metadata) && has(self.template.metadata.labels) && self.selector.matchLabels.all(k, k in self.template.metadata.labels && self.template.metadata.labels[k] == self.selector.matchLabels[k]))",message="selector.matchLabels must match template.metadata.labels",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(e, has(self.template.metadata) && has(self.template.metadata.labels) && e.key in self.template.metadata.labels ? e.operator == 'Exists' || (e.operator != 'DoesNotExist' && (self.template.metadata.labels[e.key] in e.values) == (e.operator == 'In')) : e.operator in ['NotIn', 'DoesNotExist'])",message="selector.matchExpressions must match template.metadata.labels",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="!has(self.progressDeadline) || duration(self.progressDeadline).getSeconds() > (has(self.minReadySeconds) ? self.minReadySeconds : 0)",message="progressDeadline must be longer than minReadySeconds",fieldPath=".progressDeadline"
// +kubebuilder:validation:XValidation:rule="has(self.placement) ? !has(self.template.spec.classRef) && !has(self.template.spec.provider) && !has(self.template.spec.userDataRef) && !has(self.template.spec.credentialsRef) && !has(self.template.spec.providerSpec) : has(self.template.spec.classRef) != has(self.template.spec.provider)",message="exactly one of spec.placement, template.spec.classRef and template.spec.provider must be set; with placement, the classes of its options have providerSpec, credentialsRef and userDataRef",fieldPath=".template.spec"
// +kubebuilder:validation:XValidation:rule="!has(self.versionSteps) || size(self.versionSteps) == 0 || has(self.template.spec.version)",message="template.spec.version must be set with versionSteps",fieldPath=".template.spec.version",reason="FieldValueRequired"
// +kubebuilder:validation:XValidation:rule="!has(self.versionSteps) || !has(self.template.spec.version) || !self.template.spec.version.matches('^v[0-9]{1,6}[.][0-9]{1,6}[.]') || self.versionSteps.all(s, int(s.version.split('.')[0].substring(1)) * 1000000 + int(s.version.split('.')[1]) < int(self.template.spec.version.split('.')[0].substring(1)) * 1000000 + int(self.template.spec.version.split('.')[1]))",message="each step must be of a lower minor version than template.spec.version",messageExpression="'the last step, ' + self.versionSteps[size(self.versionSteps) - 1].version + ', must be of a lower minor version than template.spec.version, which is ' + self.template.spec.version",fieldPath=".versionSteps"
// +kubebuilder:validation:XValidation:rule="!has(self.versionSteps) || has(self.template.spec.classRef) || self.versionSteps.all(s, !has(s.className))",message="className must not be set in a step, because template.spec.classRef is not set",fieldPath=".versionSteps",reason="FieldValueForbidden"
type MachineDeploymentSpec struct {
	// replicas is the desired number of machines, from 0 to 100000. If replicas is missing, an existing object keeps
	// its current number. In a new object, replicas defaults to 1, or to the nearest number within the autoscaler's
	// bounds in its annotations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Replicas *int32 `json:"replicas,omitempty"`

	// selector selects the MachineSets that the deployment may adopt. It must match the labels of the template.
	// Immutable.
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// template from which Machines are created. A change of provider, providerSpec, classRef, version or userDataRef
	// creates a new revision and starts a rollout. All other changes are applied to existing Machines in place.
	// +required
	Template MachineTemplateSpec `json:"template"`

	// placement distributes the machines over domains, such as zones, and names the classes of each domain in order of
	// preference. If classes are added to or removed from the placement, a rollout replaces the machines of the removed
	// classes. All other changes of the placement replace no machine. If placement is not set, all machines have the
	// class or the providerSpec of the template.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// versionSteps contains the versions between the version of the machines and template.spec.version, in ascending
	// order, at most one of each minor version. If the list is not empty, a rollout to a later minor version updates all
	// machines to each minor version in between, and waits if a version is missing. Steps whose minor version the
	// machines already have are skipped. If the list is empty, all machines are updated directly.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(s, int(s.version.split('.')[0].substring(1)) * 1000000 + int(s.version.split('.')[1])).isSorted()",message="must be in ascending order",messageExpression="'the steps from ' + self[0].version + ' to ' + self[size(self) - 1].version + ' must be in ascending order'"
	// +kubebuilder:validation:XValidation:rule="self.all(s, self.exists_one(o, o.version.startsWith(s.version.split('.')[0] + '.' + s.version.split('.')[1] + '.')))",message="must have at most one step of each minor version",messageExpression="'the steps from ' + self[0].version + ' to ' + self[size(self) - 1].version + ' must have at most one version of each minor version'"
	VersionSteps []VersionStep `json:"versionSteps,omitempty"`

	// strategy defines how machines of an old revision are replaced.
	// +optional
	// +kubebuilder:default={}
	Strategy DeploymentStrategy `json:"strategy,omitzero"`

	// minReadySeconds is how long a machine must be Ready before it counts as available. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// deletePolicy selects the machine to delete first among machines with the same deletion priority: Random, Newest
	// or Oldest. Defaults to Random.
	// +optional
	// +kubebuilder:default=Random
	DeletePolicy DeletePolicy `json:"deletePolicy,omitempty"`

	// rolloutAfter is a time. All machines that were created before this time are replaced. When the time of
	// rolloutAfter has come, the deployment creates a new revision from the same template. With the strategy InPlace,
	// rolloutAfter replaces no machines and affects only machines that are created later.
	// +optional
	RolloutAfter *metav1.Time `json:"rolloutAfter,omitempty"`

	// paused stops rollouts. Scaling and the replacement of failed machines continue.
	// +optional
	Paused bool `json:"paused,omitempty"`

	// hibernated stops all machines of the deployment, and starts them again when it is removed. Nodes are drained
	// first. The instances with their disks and addresses stay. While the deployment is hibernated, machines are neither
	// created nor replaced, and rollouts and expiry wait. A lower number of replicas still deletes machines.
	// MachineDisruptionBudgets do not delay the stop. A deployment that the cluster-autoscaler scales cannot be
	// hibernated. +optional
	Hibernated bool `json:"hibernated,omitempty"`

	// revisionHistoryLimit is the number of old MachineSets that are kept for a rollback. Defaults to 10.
	// +optional
	// +kubebuilder:default=10
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	RevisionHistoryLimit *int32 `json:"revisionHistoryLimit,omitempty"`

	// progressDeadline is how long a rollout may make no progress before the condition Progressing reports the delay.
	// It must be longer than minReadySeconds. Defaults to 10m.
	// +optional
	// +kubebuilder:default="10m"
	ProgressDeadline *metav1.Duration `json:"progressDeadline,omitempty"`

	// remediation limits the replacement of failed and unhealthy machines.
	// +optional
	// +kubebuilder:default={}
	Remediation MachineRemediation `json:"remediation,omitzero"`
}

// VersionStep is a version to which a rollout updates all machines before it continues with the next version.
type VersionStep struct {
	// version of the kubelet, a complete semantic version with a leading v, such as v1.35.4.
	// +required
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:Pattern=`^v(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})\.(0|[1-9][0-9]{0,5})(-[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?(\+[0-9A-Za-z-]+(\.[0-9A-Za-z-]+)*)?$`
	Version string `json:"version"`

	// className names the MachineClass of this step, such as one whose image contains the version. Set className only
	// if the template has a classRef. Defaults to the class of the template.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`
	ClassName string `json:"className,omitempty"`
}

// DeploymentStrategyType is a way to replace an old revision with a new one.
// +kubebuilder:validation:Enum=RollingUpdate;Recreate;OnDelete;InPlace
type DeploymentStrategyType string

const (
	// StrategyRollingUpdate replaces machines gradually, within maxSurge and maxUnavailable.
	StrategyRollingUpdate DeploymentStrategyType = "RollingUpdate"
	// StrategyRecreate deletes all old machines before it creates new machines.
	StrategyRecreate DeploymentStrategyType = "Recreate"
	// StrategyOnDelete replaces an old machine only when a user deletes this machine. A machine without an instance
	// is replaced at once.
	StrategyOnDelete DeploymentStrategyType = "OnDelete"
	// StrategyInPlace moves machines to the new revision. The provider changes each instance in place. If the
	// provider cannot change an instance, the provider replaces the instance under the same Machine.
	StrategyInPlace DeploymentStrategyType = "InPlace"
)

// DeploymentStrategy defines how machines of an old revision are replaced.
type DeploymentStrategy struct {
	// type of the strategy: RollingUpdate, Recreate, OnDelete or InPlace. Defaults to RollingUpdate.
	// +optional
	// +kubebuilder:default=RollingUpdate
	Type DeploymentStrategyType `json:"type,omitempty"`

	// rollingUpdate contains the limits of a rolling update. This field is used only if type is RollingUpdate.
	// +optional
	RollingUpdate *RollingUpdate `json:"rollingUpdate,omitempty"`

	// inPlace contains the limits of an update in place. This field is used only if type is InPlace.
	// +optional
	InPlace *InPlaceUpdate `json:"inPlace,omitempty"`
}

// RollingUpdate limits a rolling update.
//
// +kubebuilder:validation:XValidation:rule="(has(self.maxSurge) && self.maxSurge != 0 && self.maxSurge != '0%') || (has(self.maxUnavailable) && self.maxUnavailable != 0 && self.maxUnavailable != '0%')",message="maxSurge and maxUnavailable must not both be 0: nothing could be replaced",fieldPath=".maxUnavailable"
type RollingUpdate struct {
	// maxSurge is how many machines may exist in addition to replicas. The value is a number, or a percentage of
	// replicas, rounded up. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	MaxSurge *intstr.IntOrString `json:"maxSurge,omitempty"`

	// maxUnavailable is how many of the replicas may be unavailable. The value is a number, or a percentage of
	// replicas, rounded down. maxSurge and maxUnavailable must not both be 0. Defaults to 0.
	// +optional
	// +kubebuilder:default=0
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// partition is how many machines stay on old revisions. The rollout updates the other machines and then stops
	// without an error. To continue, lower partition. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Partition int32 `json:"partition,omitempty"`

	// pauseAfter stops the rollout of each revision once the first machines of the revision are available.
	// +optional
	PauseAfter *RolloutPause `json:"pauseAfter,omitempty"`
}

// RolloutPause stops a rollout after the first machines.
type RolloutPause struct {
	// machines is how many machines of the new revision are created before the rollout stops. If machines is at least
	// replicas, the rollout does not stop.
	// +required
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Machines int32 `json:"machines"`

	// duration is how long these machines must be available without interruption before the rollout continues. If
	// duration is not set, only the annotation machinist.dev/promote-revision continues the rollout. This annotation
	// also ends a pause with a duration early.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="must be longer than 0s"
	Duration *metav1.Duration `json:"duration,omitempty"`
}

// InPlaceOrchestration defines who selects the machines that are updated in place.
// +kubebuilder:validation:Enum=Auto;Manual
type InPlaceOrchestration string

const (
	// OrchestrationAuto updates as many machines at a time as maxUnavailable allows.
	OrchestrationAuto InPlaceOrchestration = "Auto"
	// OrchestrationManual updates only machines with the label machinist.dev/selected-for-update.
	OrchestrationManual InPlaceOrchestration = "Manual"
)

// InPlaceUpdate limits an update in place.
type InPlaceUpdate struct {
	// maxUnavailable is how many of the replicas may be unavailable. The value is a number, or a percentage of
	// replicas, rounded down, but at least 1. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`

	// orchestration defines who selects the machines. With Auto, the deployment selects the machines. With Manual,
	// users select the machines with the label machinist.dev/selected-for-update. Defaults to Auto.
	// +optional
	// +kubebuilder:default=Auto
	Orchestration InPlaceOrchestration `json:"orchestration,omitempty"`
}

// MachineRemediation limits the replacement of failed and unhealthy machines.
type MachineRemediation struct {
	// maxInFlight is how many failed or unhealthy machines are replaced at a time. The value is a number, or a
	// percentage of replicas, rounded up. A percentage above 0% results in at least 1. With 0, no machine is
	// replaced. If maxInFlight is above 0, all machines whose instance vanished are replaced immediately, without
	// this limit. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	MaxInFlight *intstr.IntOrString `json:"maxInFlight,omitempty"`
}

// MachineDeploymentStatus is the observed state of a deployment.
type MachineDeploymentStatus struct {
	// observedGeneration is the most recent generation of the deployment that the manager has acted on. A new object
	// has the value 0, because tools that use kstatus treat a new object without observedGeneration as complete.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of machines of all revisions that are not being deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// fullyLabeledReplicas is the number of machines that have all labels of the template of their set.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas"`

	// updatedReplicas is the number of machines of the newest revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpdatedReplicas int32 `json:"updatedReplicas"`

	// upToDateReplicas is the number of machines whose instance matches their spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpToDateReplicas int32 `json:"upToDateReplicas"`

	// upToDateReadyReplicas is the number of machines of the newest revision that are Ready and whose instance matches
	// their spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpToDateReadyReplicas int32 `json:"upToDateReadyReplicas"`

	// readyReplicas is the number of machines that are Ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`

	// availableReplicas is the number of machines that have been Ready for minReadySeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AvailableReplicas int32 `json:"availableReplicas"`

	// unavailableReplicas is how many more machines must become available to reach replicas.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UnavailableReplicas int32 `json:"unavailableReplicas"`

	// collisionCount is the number of collisions of the template hash. The hash includes this count, so that a
	// collision leads to another hash and another name.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CollisionCount *int32 `json:"collisionCount,omitempty"`

	// currentRevision is the number of the newest revision.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CurrentRevision int64 `json:"currentRevision,omitempty"`

	// selector is spec.selector as a string, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Selector string `json:"selector,omitempty"`

	// failedMachines describes machines that failed, at most 10.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=10
	FailedMachines []FailedMachine `json:"failedMachines,omitempty"`

	// recentFailures describes the last 5 machines that failed, could not be launched or were found unhealthy, the
	// newest first. Each machine has one entry, which stays after the machine was repaired or replaced. The time of an
	// entry is when the failure began. Messages are truncated to 1024 bytes.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=5
	RecentFailures []FailedMachine `json:"recentFailures,omitempty"`

	// versions counts the machines by the observed version of their kubelet. Machines without a Node and machines that
	// are being deleted do not count. At most the 32 most frequent versions are listed. The numbers may be 30 seconds
	// old.
	// +optional
	// +listType=map
	// +listMapKey=version
	// +kubebuilder:validation:MaxItems=32
	Versions []VersionCount `json:"versions,omitempty"`

	// versionStep is the step of the rollout in progress. It is missing if spec.versionSteps is empty, and if all
	// machines have the minor version of the template.
	// +optional
	VersionStep *VersionStepStatus `json:"versionStep,omitempty"`

	// placement shows the machines of each option of spec.placement.
	// +optional
	// +listType=map
	// +listMapKey=className
	// +kubebuilder:validation:MaxItems=512
	Placement []PlacementOptionStatus `json:"placement,omitempty"`

	// conditions of the deployment. The conditions Ready, Reconciling and Stalled summarize all other conditions. The
	// other conditions are Available, Progressing, RollingOut, Frozen, Paused, ScalableFromZero, and the conditions
	// of the deployment's sets: ScalingUp, ScalingDown, ReplicaFailure, MachinesReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// VersionStepStatus describes a step of a rollout.
type VersionStepStatus struct {
	// number of the step: its position in spec.versionSteps, beginning with 1. The last step is the version of the
	// template.
	// +required
	// +kubebuilder:validation:Minimum=1
	Number int32 `json:"number"`

	// total is the number of steps, including the version of the template.
	// +required
	// +kubebuilder:validation:Minimum=1
	Total int32 `json:"total"`

	// version to which the rollout updates the machines in this step.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Version string `json:"version"`
}

// VersionCount is the number of machines with one version of the kubelet.
type VersionCount struct {
	// version of the kubelet.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=128
	Version string `json:"version"`

	// count is the number of machines with that version.
	// +required
	// +kubebuilder:validation:Minimum=1
	Count int32 `json:"count"`
}

// MachineDeployment maintains a number of equal machines and rolls out changes of their template.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=machinedeployments,scope=Namespaced,shortName=md;mmd,categories=machinist
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.updatedReplicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Strategy",type=string,priority=1,JSONPath=`.spec.strategy.type`
// +kubebuilder:printcolumn:name="Paused",type=boolean,priority=1,JSONPath=`.spec.paused`
// +kubebuilder:printcolumn:name="Revision",type=integer,priority=1,JSONPath=`.status.currentRevision`
// +kubebuilder:printcolumn:name="Class",type=string,priority=1,JSONPath=`.spec.template.spec.classRef.name`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.spec.template.spec.version`
// +kubebuilder:printcolumn:name="Progressing",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Progressing")].reason`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 47 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 47 characters: it is part of the names of sets and machines"
type MachineDeployment struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired number and kind of machines, and how they are replaced when they change.
	// +required
	Spec MachineDeploymentSpec `json:"spec"`

	// status is the observed state of the deployment.
	// +optional
	// +kubebuilder:default={}
	Status MachineDeploymentStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the deployment.
func (d *MachineDeployment) GetConditions() []metav1.Condition { return d.Status.Conditions }

// SetConditions replaces the conditions of the deployment.
func (d *MachineDeployment) SetConditions(conditions []metav1.Condition) {
	d.Status.Conditions = conditions
}

// ReplicasOrDefault returns the desired number of machines, 1 if unset. The manager sets a missing spec.replicas before
// it does anything else with the object.
func (d *MachineDeployment) ReplicasOrDefault() int32 {
	return int32Or(d.Spec.Replicas, DefaultReplicas)
}

// DeletePolicyOrDefault returns the delete policy, Random if unset.
func (d *MachineDeployment) DeletePolicyOrDefault() DeletePolicy {
	if d.Spec.DeletePolicy == "" {
		return DeleteRandom
	}
	return d.Spec.DeletePolicy
}

// RevisionHistoryLimitOrDefault returns the number of old sets to keep, 10 if unset.
func (d *MachineDeployment) RevisionHistoryLimitOrDefault() int32 {
	return int32Or(d.Spec.RevisionHistoryLimit, DefaultRevisionHistoryLimit)
}

// ProgressDeadlineOrDefault returns the progress deadline, 10 minutes if unset.
func (d *MachineDeployment) ProgressDeadlineOrDefault() time.Duration {
	return durationOr(d.Spec.ProgressDeadline, DefaultProgressDeadline)
}

// TypeOrDefault returns the type of the strategy, RollingUpdate if unset.
func (s DeploymentStrategy) TypeOrDefault() DeploymentStrategyType {
	if s.Type == "" {
		return StrategyRollingUpdate
	}
	return s.Type
}

// MaxSurgeOrDefault returns rollingUpdate.maxSurge, 1 if unset. It does not check the type of the strategy.
func (s DeploymentStrategy) MaxSurgeOrDefault() intstr.IntOrString {
	if s.RollingUpdate == nil {
		return intstr.FromInt32(DefaultMaxSurge)
	}
	return intOrStringOr(s.RollingUpdate.MaxSurge, DefaultMaxSurge)
}

// MaxUnavailableOrDefault returns rollingUpdate.maxUnavailable, 0 if unset. It does not check the type of the
// strategy.
func (s DeploymentStrategy) MaxUnavailableOrDefault() intstr.IntOrString {
	if s.RollingUpdate == nil {
		return intstr.FromInt32(DefaultMaxUnavailable)
	}
	return intOrStringOr(s.RollingUpdate.MaxUnavailable, DefaultMaxUnavailable)
}

// Partition returns rollingUpdate.partition, or 0 if the strategy is not RollingUpdate.
func (s DeploymentStrategy) Partition() int32 {
	if s.RollingUpdate == nil || s.TypeOrDefault() != StrategyRollingUpdate {
		return 0
	}
	return max(0, s.RollingUpdate.Partition)
}

// PauseAfter returns rollingUpdate.pauseAfter, or nil if the strategy is not RollingUpdate.
func (s DeploymentStrategy) PauseAfter() *RolloutPause {
	if s.RollingUpdate == nil || s.TypeOrDefault() != StrategyRollingUpdate {
		return nil
	}
	return s.RollingUpdate.PauseAfter
}

// InPlaceMaxUnavailableOrDefault returns inPlace.maxUnavailable, 1 if unset. It does not check the type of the
// strategy.
func (s DeploymentStrategy) InPlaceMaxUnavailableOrDefault() intstr.IntOrString {
	if s.InPlace == nil {
		return intstr.FromInt32(DefaultInPlaceMaxUnavailable)
	}
	return intOrStringOr(s.InPlace.MaxUnavailable, DefaultInPlaceMaxUnavailable)
}

// OrchestrationOrDefault returns inPlace.orchestration, Auto if unset. It does not check the type of the strategy.
func (s DeploymentStrategy) OrchestrationOrDefault() InPlaceOrchestration {
	if s.InPlace == nil || s.InPlace.Orchestration == "" {
		return OrchestrationAuto
	}
	return s.InPlace.Orchestration
}

// MaxInFlightOrDefault returns maxInFlight, 1 if unset.
func (r MachineRemediation) MaxInFlightOrDefault() intstr.IntOrString {
	return intOrStringOr(r.MaxInFlight, DefaultMaxInFlight)
}

func intOrStringOr(v *intstr.IntOrString, fallback int32) intstr.IntOrString {
	if v == nil {
		return intstr.FromInt32(fallback)
	}
	return *v
}

// MachineDeploymentList is a list of MachineDeployments.
//
// +kubebuilder:object:root=true
type MachineDeploymentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineDeployment `json:"items"`
}
