package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DisruptionReason is a reason, other than a scale-down, to take a machine out of service.
// +kubebuilder:validation:Enum=Remediation;Replace;Rollout;InPlaceUpdate;Expiry;Rebalance
type DisruptionReason string

// Each voluntary disruption has one of these reasons. Budgets do not limit a scale-down, a deletion by a user, or the
// replacement of a machine whose instance is gone.
const (
	// DisruptionRemediation replaces a machine that failed or that a health check found unhealthy.
	DisruptionRemediation DisruptionReason = "Remediation"
	// DisruptionReplace replaces a machine that has AnnotationReplace.
	DisruptionReplace DisruptionReason = "Replace"
	// DisruptionRollout replaces a machine of an old revision.
	DisruptionRollout DisruptionReason = "Rollout"
	// DisruptionInPlaceUpdate changes a machine of an old revision in place.
	DisruptionInPlaceUpdate DisruptionReason = "InPlaceUpdate"
	// DisruptionExpiry replaces a machine that is older than expireAfter.
	DisruptionExpiry DisruptionReason = "Expiry"
	// DisruptionRebalance replaces a machine in order to restore the distribution of spec.placement.
	DisruptionRebalance DisruptionReason = "Rebalance"
)

// DisruptionReasons are all reasons in the order of their priority. If budgets do not allow all disruptions,
// disruptions whose reason has a higher priority come first.
var DisruptionReasons = []DisruptionReason{DisruptionRemediation, DisruptionReplace, DisruptionRollout,
	DisruptionInPlaceUpdate, DisruptionExpiry, DisruptionRebalance}

// MachineDisruptionBudgetSpec limits how many machines may be disrupted at a time, for which reasons, and when.
type MachineDisruptionBudgetSpec struct {
	// selector selects the Machines to which this budget applies, in the namespace of the budget. An empty selector
	// selects all Machines.
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// maxDisrupted is how many of the selected machines may be disrupted at a time. The value is a number, or a
	// percentage of the selected machines, rounded down. A percentage above 0% results in at least 1. With 0, no
	// disruption is allowed.
	// +required
	MaxDisrupted intstr.IntOrString `json:"maxDisrupted"`

	// reasons contains the disruption reasons that this budget limits. An empty list means all reasons. Machines that
	// are disrupted for other reasons also count towards maxDisrupted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=6
	Reasons []DisruptionReason `json:"reasons,omitempty"`

	// windows are recurring times. Without windows, the budget is always in force.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Windows []DisruptionWindow `json:"windows,omitempty"`

	// apply defines whether the budget is in force while a window is open (Inside) or while all windows are closed
	// (Outside). Defaults to Inside.
	// +optional
	// +kubebuilder:default=Inside
	Apply DisruptionApply `json:"apply,omitempty"`
}

// DisruptionApply defines when a budget with windows is in force.
// +kubebuilder:validation:Enum=Inside;Outside
type DisruptionApply string

const (
	// ApplyInside means that the budget is in force while a window is open.
	ApplyInside DisruptionApply = "Inside"
	// ApplyOutside means that the budget is in force while no window is open.
	ApplyOutside DisruptionApply = "Outside"
)

// DisruptionWindow is a recurring time.
type DisruptionWindow struct {
	// schedule defines when the window opens. It consists of the five fields of cron (minute, hour, day of the month,
	// month, day of the week), or is @hourly, @daily, @weekly, @monthly or @yearly. If daylight saving time skips the
	// scheduled time, the window opens at the moment of the change. If the scheduled time occurs twice, the window
	// opens twice.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`

	// timeZone is the time zone of the schedule, a name in the IANA database such as Europe/Berlin. Defaults to UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`

	// duration is how long the window stays open, from 1m to 168h. Daylight saving time does not affect the duration.
	// Windows may overlap.
	// +required
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1m') && duration(self) <= duration('168h')",message="must be from 1m to 168h"
	Duration metav1.Duration `json:"duration"`
}

// MachineDisruptionBudgetStatus shows how much of a budget is used. The status is for information only. No decision
// of Machinist depends on the status.
type MachineDisruptionBudgetStatus struct {
	// observedGeneration is the generation of the budget that this status describes.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// selected is the number of machines that the budget selects.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Selected int32 `json:"selected"`

	// disrupted is the number of selected machines that are disrupted.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	Disrupted int32 `json:"disrupted"`

	// allowed is how many machines may currently be disrupted at a time. The field is missing while the budget is not
	// in force.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Allowed *int32 `json:"allowed,omitempty"`

	// nextChange is the next time at which the budget comes into force or goes out of force. The field is unset if
	// the budget has no windows.
	// +optional
	NextChange *metav1.Time `json:"nextChange,omitempty"`

	// conditions of the budget: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineDisruptionBudget limits how many machines may be disrupted at a time, for which reasons, and when. If several
// budgets select a machine, all selecting budgets that are in force must allow the machine's disruption.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machinedisruptionbudgets,scope=Namespaced,shortName=mdb,categories=machinist
// +kubebuilder:printcolumn:name="Max-Disrupted",type=string,JSONPath=`.spec.maxDisrupted`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.selected`
// +kubebuilder:printcolumn:name="Disrupted",type=integer,JSONPath=`.status.disrupted`
// +kubebuilder:printcolumn:name="Allowed",type=integer,JSONPath=`.status.allowed`
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reasons",type=string,priority=1,JSONPath=`.spec.reasons`
// +kubebuilder:printcolumn:name="Next-Change",type=string,priority=1,JSONPath=`.status.nextChange`
type MachineDisruptionBudget struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec limits how many machines may be disrupted at a time.
	// +required
	Spec MachineDisruptionBudgetSpec `json:"spec"`

	// status shows how much of the budget is used.
	// +optional
	Status MachineDisruptionBudgetStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the budget.
func (b *MachineDisruptionBudget) GetConditions() []metav1.Condition { return b.Status.Conditions }

// SetConditions replaces the conditions of the budget.
func (b *MachineDisruptionBudget) SetConditions(conditions []metav1.Condition) {
	b.Status.Conditions = conditions
}

// MachineDisruptionBudgetList is a list of MachineDisruptionBudgets.
//
// +kubebuilder:object:root=true
type MachineDisruptionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineDisruptionBudget `json:"items"`
}
