package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// DefaultReplicas is the number of machines of a new set or deployment if its spec does not set replicas.
const DefaultReplicas int32 = 1

// DeletePolicy selects which of otherwise equal machines a set deletes first.
// +kubebuilder:validation:Enum=Random;Newest;Oldest
type DeletePolicy string

const (
	// DeleteRandom deletes machines in a pseudorandom order, which depends on their UIDs and the generation of the set.
	DeleteRandom DeletePolicy = "Random"
	// DeleteNewest deletes the youngest machine first.
	DeleteNewest DeletePolicy = "Newest"
	// DeleteOldest deletes the oldest machine first.
	DeleteOldest DeletePolicy = "Oldest"
)

// TemplateMeta is the metadata of the Machines that are created from a template.
type TemplateMeta struct {
	// labels of the Machines. Changes are applied to existing Machines in place, including the removal of keys.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`

	// annotations of the Machines. Changes are applied to existing Machines in place, including the removal of keys.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Annotations map[string]string `json:"annotations,omitempty"`
}

// MachineTemplateSpec is the template from which Machines are created.
//
// +kubebuilder:validation:XValidation:rule="!has(self.spec.powerState)",message="powerState must not be set in a template: set it on single Machines, or set hibernated on the MachineDeployment",fieldPath=".spec.powerState",reason="FieldValueForbidden"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.providerID) || size(self.spec.providerID) == 0",message="providerID must not be set in a template",fieldPath=".spec.providerID",reason="FieldValueForbidden"
type MachineTemplateSpec struct {
	// metadata of the Machines.
	// +optional
	ObjectMeta TemplateMeta `json:"metadata,omitzero"`

	// spec of the Machines.
	// +required
	Spec MachineSpec `json:"spec"`
}

// MachineSetSpec defines the desired machines: their number and their template.
//
// +kubebuilder:validation:XValidation:rule="self.selector == oldSelf.selector",message="selector is immutable",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="(has(self.selector.matchLabels) && size(self.selector.matchLabels) > 0) || (has(self.selector.matchExpressions) && size(self.selector.matchExpressions) > 0)",message="selector must not be empty",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="!has(self.selector.matchLabels) || (has(self.template.metadata) && has(self.template.metadata.labels) && self.selector.matchLabels.all(k, k in self.template.metadata.labels && self.template.metadata.labels[k] == self.selector.matchLabels[k]))",message="selector.matchLabels must match template.metadata.labels",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="!has(self.selector.matchExpressions) || self.selector.matchExpressions.all(e, has(self.template.metadata) && has(self.template.metadata.labels) && e.key in self.template.metadata.labels ? e.operator == 'Exists' || (e.operator != 'DoesNotExist' && (self.template.metadata.labels[e.key] in e.values) == (e.operator == 'In')) : e.operator in ['NotIn', 'DoesNotExist'])",message="selector.matchExpressions must match template.metadata.labels",fieldPath=".selector"
// +kubebuilder:validation:XValidation:rule="has(self.placement) ? !has(self.template.spec.classRef) && !has(self.template.spec.provider) && !has(self.template.spec.userDataRef) && !has(self.template.spec.credentialsRef) && !has(self.template.spec.providerSpec) : has(self.template.spec.classRef) != has(self.template.spec.provider)",message="exactly one of spec.placement, template.spec.classRef and template.spec.provider must be set; with placement, the classes of its options have providerSpec, credentialsRef and userDataRef",fieldPath=".template.spec"
type MachineSetSpec struct {
	// replicas is the desired number of machines, from 0 to 100000. If replicas is missing, an existing object keeps
	// its current number. In a new object, replicas defaults to 1, or to the nearest number within the autoscaler's
	// bounds in its annotations.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	Replicas *int32 `json:"replicas,omitempty"`

	// selector selects the Machines that the set may adopt. It must match the labels of the template. Immutable.
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// template from which Machines are created.
	// +required
	Template MachineTemplateSpec `json:"template"`

	// placement distributes the machines over domains. If a MachineDeployment owns the set, spec.replicas of the
	// deployment is distributed over the domains, and the machines of all of its sets count.
	// +optional
	Placement *Placement `json:"placement,omitempty"`

	// minReadySeconds is how long a machine must be Ready before it counts as available. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	MinReadySeconds int32 `json:"minReadySeconds,omitempty"`

	// deletePolicy selects which of otherwise equal machines is deleted first: Random, Newest or Oldest. Defaults to
	// Random.
	// +optional
	// +kubebuilder:default=Random
	DeletePolicy DeletePolicy `json:"deletePolicy,omitempty"`

	// hibernated stops all machines of the set, and starts them again when it is removed. While the set is hibernated, it
	// neither creates nor replaces machines. For a set that a MachineDeployment owns, the deployment sets this field.
	// +optional
	Hibernated bool `json:"hibernated,omitempty"`

	// remediation limits the replacement of failed and unhealthy machines. For a set that a MachineDeployment owns,
	// spec.remediation of the deployment applies instead, to all of its sets together.
	// +optional
	Remediation MachineRemediation `json:"remediation,omitzero"`
}

// MachineSetStatus is the observed state of a set.
type MachineSetStatus struct {
	// observedGeneration is the most recent generation of the set that the manager has acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// replicas is the number of machines that are not being deleted.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// fullyLabeledReplicas is the number of machines that have all labels of the template.
	// +optional
	// +kubebuilder:validation:Minimum=0
	FullyLabeledReplicas int32 `json:"fullyLabeledReplicas"`

	// readyReplicas is the number of machines that are Ready.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`

	// availableReplicas is the number of machines that have been Ready for minReadySeconds.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AvailableReplicas int32 `json:"availableReplicas"`

	// upToDateReplicas is the number of machines whose instance matches their spec.
	// +optional
	// +kubebuilder:validation:Minimum=0
	UpToDateReplicas int32 `json:"upToDateReplicas"`

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

	// conditions of the set: ScalingUp, ScalingDown, ReplicaFailure, AdoptionSkipped, Frozen, MachinesReady and
	// ScalableFromZero.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=32
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FailedMachine summarizes the failure of a machine.
type FailedMachine struct {
	// name of the Machine.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// reason of the failure: the failureReason of the machine, or the reason of its condition Launched. In the status
	// of a deployment, it may also be the reason of RemediationRequested.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`

	// message of the failure.
	// +optional
	// +kubebuilder:validation:MaxLength=32768
	Message string `json:"message,omitempty"`

	// time of the failure.
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}

// MachineSet maintains a number of equal machines.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:resource:path=machinesets,scope=Namespaced,shortName=ms;mms,categories=machinist
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`
// +kubebuilder:printcolumn:name="Replicas",type=integer,JSONPath=`.status.replicas`
// +kubebuilder:printcolumn:name="Ready",type=integer,JSONPath=`.status.readyReplicas`
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`
// +kubebuilder:printcolumn:name="Up-to-date",type=integer,JSONPath=`.status.upToDateReplicas`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Class",type=string,priority=1,JSONPath=`.spec.template.spec.classRef.name`
// +kubebuilder:printcolumn:name="Version",type=string,priority=1,JSONPath=`.spec.template.spec.version`
// +kubebuilder:printcolumn:name="Frozen",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Frozen")].status`
// +kubebuilder:validation:XValidation:rule="size(self.metadata.name) <= 57 && !self.metadata.name.contains('.')",message="metadata.name must be a DNS label of at most 57 characters: it is part of machine names and label values"
type MachineSet struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the desired number and kind of machines.
	// +required
	Spec MachineSetSpec `json:"spec"`

	// status is the observed state of the set.
	// +optional
	Status MachineSetStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the set.
func (s *MachineSet) GetConditions() []metav1.Condition { return s.Status.Conditions }

// SetConditions replaces the conditions of the set.
func (s *MachineSet) SetConditions(conditions []metav1.Condition) { s.Status.Conditions = conditions }

// ReplicasOrDefault returns the desired number of machines, 1 if unset. The manager sets a missing spec.replicas before
// it does anything else with the object.
func (s *MachineSet) ReplicasOrDefault() int32 {
	return int32Or(s.Spec.Replicas, DefaultReplicas)
}

// DeletePolicyOrDefault returns the delete policy, Random if unset.
func (s *MachineSet) DeletePolicyOrDefault() DeletePolicy {
	if s.Spec.DeletePolicy == "" {
		return DeleteRandom
	}
	return s.Spec.DeletePolicy
}

func int32Or(n *int32, fallback int32) int32 {
	if n == nil {
		return fallback
	}
	return *n
}

// MachineSetList is a list of MachineSets.
//
// +kubebuilder:object:root=true
type MachineSetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSet `json:"items"`
}
