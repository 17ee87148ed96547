package v1beta1

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// DefaultMaxUnhealthy is the default share of the selected machines that may be unhealthy before remediation stops.
const DefaultMaxUnhealthy = "40%"

// MachineHealthCheckSpec defines when a machine is unhealthy and what happens to an unhealthy machine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.nodeStartupTimeout) || duration(self.nodeStartupTimeout) > duration('0s')",message="nodeStartupTimeout must be longer than 0s",fieldPath=".nodeStartupTimeout"
type MachineHealthCheckSpec struct {
	// selector selects the Machines that this check evaluates. An empty selector selects all Machines of the
	// namespace. For Machines without a check, the manager's flags --health-timeout and --health-node-conditions
	// apply.
	// +required
	Selector metav1.LabelSelector `json:"selector"`

	// unhealthyNodeConditions are the Node conditions that make a machine unhealthy. A machine is unhealthy if its Node
	// has at least one of these conditions.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +listMapKey=status
	// +kubebuilder:validation:MaxItems=64
	UnhealthyNodeConditions []UnhealthyNodeCondition `json:"unhealthyNodeConditions,omitempty"`

	// unhealthyMachineConditions are the Machine conditions that make a machine unhealthy while it has an instance. A
	// machine is unhealthy if it has at least one of these conditions. Other controllers set such conditions. A condition
	// that Machinist sets, such as Ready, is refused.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +listMapKey=status
	// +kubebuilder:validation:MaxItems=64
	UnhealthyMachineConditions []UnhealthyMachineCondition `json:"unhealthyMachineConditions,omitempty"`

	// nodeStartupTimeout is how long a Machine may be without a Node after its creation. The shorter of this timeout
	// and timeouts.creation of the Machine applies. If unset, only timeouts.creation applies.
	// +optional
	NodeStartupTimeout *metav1.Duration `json:"nodeStartupTimeout,omitempty"`

	// maxUnhealthy is how many of the selected machines may be unhealthy. The value is a number, or a percentage of
	// the selected machines, rounded down. A percentage above 0% results in at least 1. While more machines are
	// unhealthy, no machine is remediated. Defaults to 40%.
	// +optional
	// +kubebuilder:default="40%"
	MaxUnhealthy *intstr.IntOrString `json:"maxUnhealthy,omitempty"`

	// unhealthyRange is the range of numbers of unhealthy machines in which machines are remediated, such as [3-5].
	// Both ends are part of the range. While fewer or more of the selected machines are unhealthy, no machine is
	// remediated. If unhealthyRange is set, maxUnhealthy has no effect.
	// +optional
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule="self.matches('^\\\\[[0-9]{1,9}-[0-9]{1,9}\\\\]$') && int(self.substring(1, self.indexOf('-'))) <= int(self.substring(self.indexOf('-') + 1, self.size() - 1))",message="must be two numbers of at most 9 digits, such as [3-5], and the first must not be greater than the second",messageExpression="'\"' + self + '\" must be two numbers of at most 9 digits, such as [3-5], and the first must not be greater than the second'"
	UnhealthyRange string `json:"unhealthyRange,omitempty"`

	// remediation defines what happens to an unhealthy machine.
	// +optional
	// +kubebuilder:default={}
	Remediation HealthCheckRemediation `json:"remediation,omitzero"`
}

// UnhealthyNodeCondition is a Node condition that makes a machine unhealthy if it lasts longer than a timeout.
//
// +kubebuilder:validation:XValidation:rule="self.type in ['Ready', 'MemoryPressure', 'DiskPressure', 'PIDPressure', 'NetworkUnavailable'] || !(self.type.lowerAscii() in ['ready', 'memorypressure', 'diskpressure', 'pidpressure', 'networkunavailable'])",message="differs from a condition of Nodes only in upper and lower case: write Ready, MemoryPressure, DiskPressure, PIDPressure or NetworkUnavailable",fieldPath=".type"
type UnhealthyNodeCondition struct {
	// type of the Node condition, such as Ready. The type is case-sensitive. The API server refuses a misspelled
	// standard condition of Kubernetes, such as ready.
	// +required
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type corev1.NodeConditionType `json:"type"`

	// status of the Node condition: True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status corev1.ConditionStatus `json:"status"`

	// timeout is how long the condition must have had that status before the machine counts as unhealthy.
	// +required
	Timeout metav1.Duration `json:"timeout"`
}

// UnhealthyMachineCondition is a Machine condition that makes the machine unhealthy if it lasts longer than a timeout.
//
// +kubebuilder:validation:XValidation:rule="!(self.type.lowerAscii() in ['launched', 'registered', 'nodehealthy', 'uptodate', 'drained', 'drainextended', 'volumesdetached', 'ready', 'deleting', 'paused', 'preserved', 'interruptionnotice', 'remediationrequested', 'certificateapproved', 'owned', 'powerstatereached', 'rebooted'])",message="Machinist sets this condition, so it cannot make a machine unhealthy: use unhealthyNodeConditions, nodeStartupTimeout or spec.timeouts of the machines",fieldPath=".type"
type UnhealthyMachineCondition struct {
	// type of the Machine condition. The type is case-sensitive.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=316
	Type string `json:"type"`

	// status of the Machine condition: True, False or Unknown.
	// +required
	// +kubebuilder:validation:Enum=True;False;Unknown
	Status metav1.ConditionStatus `json:"status"`

	// timeout is how long the condition must have had that status before the machine counts as unhealthy.
	// +required
	Timeout metav1.Duration `json:"timeout"`
}

// RemediationType defines what happens to an unhealthy machine.
// +kubebuilder:validation:Enum=Replace;Reboot;External;None
type RemediationType string

const (
	// RemediationReplace marks the machine, and the owner of the machine replaces it.
	RemediationReplace RemediationType = "Replace"
	// RemediationExternal marks the machine for a remediator outside Machinist.
	RemediationExternal RemediationType = "External"
	// RemediationNone marks no machine. The check only counts unhealthy machines.
	RemediationNone RemediationType = "None"
)

// RemediationTemplateReference names a remediation template of another operator. The template is in the target cluster.
type RemediationTemplateReference struct {
	// apiVersion of the template, such as self-node-remediation.medik8s.io/v1alpha1.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?/[a-z0-9]+$`
	APIVersion string `json:"apiVersion"`

	// kind of the template, such as SelfNodeRemediationTemplate. The kind of the remediation is the same without the
	// ending Template.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*Template$`
	Kind string `json:"kind"`

	// namespace of the template. The remediations are created in this namespace.
	// +required
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`
	Namespace string `json:"namespace"`

	// name of the template.
	// +required
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	Name string `json:"name"`
}

// RemediationKind returns the kind of the remediations that are created from the template.
func (r RemediationTemplateReference) RemediationKind() schema.GroupVersionKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, strings.TrimSuffix(r.Kind, "Template"))
}

// RemediationTimeoutAction defines what happens to a machine whose external remediation failed or timed out.
// +kubebuilder:validation:Enum=Replace;None
type RemediationTimeoutAction string

const (
	// OnTimeoutReplace requests the replacement of the machine.
	OnTimeoutReplace RemediationTimeoutAction = "Replace"
	// OnTimeoutNone only reports the machine.
	OnTimeoutNone RemediationTimeoutAction = "None"
)

// HealthCheckRemediation defines what happens to an unhealthy machine.
//
// +kubebuilder:validation:XValidation:rule="!has(self.templateRef) || self.type == 'External'",message="requires type External",fieldPath=".templateRef"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || has(self.templateRef)",message="requires templateRef",fieldPath=".timeout"
// +kubebuilder:validation:XValidation:rule="!has(self.onTimeout) || has(self.templateRef)",message="requires templateRef",fieldPath=".onTimeout"
// +kubebuilder:validation:XValidation:rule="!has(self.timeout) || duration(self.timeout) > duration('0s')",message="must be longer than 0s",fieldPath=".timeout"
type HealthCheckRemediation struct {
	// type of remediation. With Replace, the owner of the machine replaces the machine. With Reboot, the instance is
	// rebooted first, and the machine is replaced if this does not help. With External, the machine is
	// marked for a remediator outside Machinist. With None, unhealthy machines are only counted. Defaults to Replace.
	// +optional
	// +kubebuilder:default=Replace
	Type RemediationType `json:"type,omitempty"`

	// reboot limits the reboots of a machine. It has an effect only with the type Reboot.
	// +optional
	Reboot *RebootRemediation `json:"reboot,omitempty"`

	// maxRetries limits how many replacements in a row may be replaced again. If unset, there is no limit.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxRetries *int32 `json:"maxRetries,omitempty"`

	// templateRef is a remediation template of another operator, such as Medik8s. For each unhealthy machine with a Node,
	// the manager creates a remediation from the template in the target cluster. The manager's flag --remediation-kinds
	// must permit the kind of the remediation. Requires type External. If unset, the machine is only marked.
	// +optional
	TemplateRef *RemediationTemplateReference `json:"templateRef,omitempty"`

	// timeout is how long the remediation may take until the machine is healthy. When the time is over, the manager sets
	// the annotation remediation.medik8s.io/nhc-timed-out on the remediation, and onTimeout applies. If unset, there is
	// no time limit.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// onTimeout defines what happens if the remediation fails or exceeds timeout, or if the machine has no Node to
	// remediate. With Replace, the owner of the machine replaces the machine. With None, the machine is only reported.
	// Defaults to None.
	// +optional
	OnTimeout RemediationTimeoutAction `json:"onTimeout,omitempty"`
}

// MachineHealthCheckStatus is the observed state of a health check.
type MachineHealthCheckStatus struct {
	// observedGeneration is the most recent generation of the check that the manager has acted on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// expectedMachines is the number of selected machines.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ExpectedMachines int32 `json:"expectedMachines"`

	// currentHealthy is the number of selected machines that are healthy.
	// +optional
	// +kubebuilder:validation:Minimum=0
	CurrentHealthy int32 `json:"currentHealthy"`

	// remediationsAllowed is how many more machines may become unhealthy before remediation stops. It is 0 while the
	// number of unhealthy machines is outside spec.unhealthyRange.
	// +optional
	// +kubebuilder:validation:Minimum=0
	RemediationsAllowed int32 `json:"remediationsAllowed"`

	// targets are the names of the unhealthy machines, in alphabetical order, at most 100.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=100
	// +kubebuilder:validation:items:MaxLength=63
	Targets []string `json:"targets,omitempty"`

	// conditions of the check: RemediationAllowed, RemediationTemplateReady.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MachineHealthCheck defines when machines are unhealthy and what happens to an unhealthy machine.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machinehealthchecks,scope=Namespaced,shortName=mhc;mmhc,categories=machinist
// +kubebuilder:printcolumn:name="Expected",type=integer,JSONPath=`.status.expectedMachines`
// +kubebuilder:printcolumn:name="Healthy",type=integer,JSONPath=`.status.currentHealthy`
// +kubebuilder:printcolumn:name="Max-Unhealthy",type=string,JSONPath=`.spec.maxUnhealthy`
// +kubebuilder:printcolumn:name="Allowed",type=string,JSONPath=`.status.conditions[?(@.type=="RemediationAllowed")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Remediation",type=string,priority=1,JSONPath=`.spec.remediation.type`
// +kubebuilder:printcolumn:name="Unhealthy-Range",type=string,priority=1,JSONPath=`.spec.unhealthyRange`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="RemediationAllowed")].reason`
type MachineHealthCheck struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec defines when a machine is unhealthy and what happens to an unhealthy machine.
	// +required
	Spec MachineHealthCheckSpec `json:"spec"`

	// status is the observed state of the check.
	// +optional
	Status MachineHealthCheckStatus `json:"status,omitempty"`
}

// GetConditions returns the conditions of the check.
func (c *MachineHealthCheck) GetConditions() []metav1.Condition { return c.Status.Conditions }

// SetConditions replaces the conditions of the check.
func (c *MachineHealthCheck) SetConditions(conditions []metav1.Condition) {
	c.Status.Conditions = conditions
}

// MaxUnhealthyOrDefault returns how many of the selected machines may be unhealthy, 40% if unset.
func (c *MachineHealthCheck) MaxUnhealthyOrDefault() intstr.IntOrString {
	if c.Spec.MaxUnhealthy == nil {
		return intstr.FromString(DefaultMaxUnhealthy)
	}
	return *c.Spec.MaxUnhealthy
}

// UnhealthyRange is a range of numbers of unhealthy machines. Both ends are part of the range.
//
// +kubebuilder:object:generate=false
type UnhealthyRange struct{ Min, Max int }

// unhealthyRange is the syntax of spec.unhealthyRange. Nine digits fit into every integer type.
var unhealthyRange = regexp.MustCompile(`^\[([0-9]{1,9})-([0-9]{1,9})\]$`)

// ParseUnhealthyRange parses a range such as [3-5].
func ParseUnhealthyRange(text string) (UnhealthyRange, error) {
	parts := unhealthyRange.FindStringSubmatch(text)
	if parts == nil {
		return UnhealthyRange{}, errors.New("must be two numbers of at most 9 digits, such as [3-5]")
	}
	var r UnhealthyRange
	r.Min, _ = strconv.Atoi(parts[1])
	r.Max, _ = strconv.Atoi(parts[2])
	if r.Min > r.Max {
		return UnhealthyRange{}, fmt.Errorf("%d is greater than %d: swap the two numbers", r.Min, r.Max)
	}
	return r, nil
}

func (r UnhealthyRange) String() string { return fmt.Sprintf("[%d-%d]", r.Min, r.Max) }

// TypeOrDefault returns the type of remediation, Replace if unset.
func (r HealthCheckRemediation) TypeOrDefault() RemediationType {
	if r.Type == "" {
		return RemediationReplace
	}
	return r.Type
}

// MachineHealthCheckList is a list of MachineHealthChecks.
//
// +kubebuilder:object:root=true
type MachineHealthCheckList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineHealthCheck `json:"items"`
}
