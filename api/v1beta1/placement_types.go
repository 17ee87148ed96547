package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Default values of a Placement, for fields that the spec does not set.
const (
	DefaultDomainWeight int32 = 1
	DefaultMaxSkew      int32 = 1
)

// Placement distributes the machines of a deployment over domains.
type Placement struct {
	// domains are the places for machines, such as zones. A placement with one domain only defines fallback classes.
	// +required
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	Domains []PlacementDomain `json:"domains"`

	// maxSkew is the largest permitted difference between the number of machines in a domain and the domain's share of
	// replicas. The shares follow the weights, minReplicas and maxReplicas of the domains. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	MaxSkew int32 `json:"maxSkew,omitempty"`

	// whenUnsatisfiable defines what happens to a machine whose domain has no capacity, if another domain could get the
	// machine only beyond maxSkew: Exceed or Wait. Defaults to Exceed.
	// +optional
	// +kubebuilder:default=Exceed
	WhenUnsatisfiable PlacementFallback `json:"whenUnsatisfiable,omitempty"`

	// rebalance defines whether machines are replaced in order to restore the distribution: Never or WhenIdle. Defaults
	// to Never.
	// +optional
	// +kubebuilder:default=Never
	Rebalance PlacementRebalance `json:"rebalance,omitempty"`
}

// PlacementDomain is a place for machines, such as a zone.
//
// +kubebuilder:validation:XValidation:rule="!has(self.maxReplicas) || !has(self.minReplicas) || self.minReplicas <= self.maxReplicas",message="minReplicas must not be greater than maxReplicas",fieldPath=".minReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.weight) || self.weight != 0 || !has(self.minReplicas) || self.minReplicas == 0",message="minReplicas must be 0 if weight is 0: the domain gets no new machines",fieldPath=".minReplicas"
type PlacementDomain struct {
	// name of the domain, a DNS label. Machines have this name in the label machinist.dev/placement-domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`

	// weight is the domain's part of the replicas in relation to the weights of the other domains. With 0, the domain
	// gets no new machines. Defaults to 1.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weight *int32 `json:"weight,omitempty"`

	// minReplicas is the number of machines that the domain gets before machines are distributed by weight. Defaults to 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MinReplicas int32 `json:"minReplicas,omitempty"`

	// maxReplicas is the maximum number of machines in the domain. Machines that a rollout is about to replace do not
	// count. If maxReplicas is not set, there is no maximum.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxReplicas *int32 `json:"maxReplicas,omitempty"`

	// options are the classes for the machines of this domain, the preferred class first. A machine gets the first class
	// for which the cloud has capacity.
	// +required
	// +listType=map
	// +listMapKey=className
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	Options []PlacementOption `json:"options"`
}

// WeightOrDefault returns the weight of the domain, 1 if unset.
func (d *PlacementDomain) WeightOrDefault() int32 { return int32Or(d.Weight, DefaultDomainWeight) }

// PlacementOption is a class for the machines of a domain.
type PlacementOption struct {
	// className is the name of a MachineClass. A placement contains each class at most once. All classes of a placement
	// have the same provider.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`
}

// PlacementFallback defines what happens to a machine that has no place within maxSkew.
// +kubebuilder:validation:Enum=Exceed;Wait
type PlacementFallback string

const (
	// PlacementExceed creates the machine in another domain, beyond maxSkew.
	PlacementExceed PlacementFallback = "Exceed"
	// PlacementWait keeps the machine in its domain until the cloud has capacity.
	PlacementWait PlacementFallback = "Wait"
)

// PlacementRebalance defines whether machines are replaced in order to restore the distribution of a placement.
// +kubebuilder:validation:Enum=Never;WhenIdle
type PlacementRebalance string

const (
	// RebalanceNever replaces no machine. New machines and scale-downs restore the distribution over time.
	RebalanceNever PlacementRebalance = "Never"
	// RebalanceWhenIdle replaces surplus machines while all machines are available and no rollout is in progress. The
	// replacement is a disruption with the reason Rebalance.
	RebalanceWhenIdle PlacementRebalance = "WhenIdle"
)

// MaxSkewOrDefault returns the maximum skew, 1 if unset.
func (p *Placement) MaxSkewOrDefault() int32 {
	if p.MaxSkew == 0 {
		return DefaultMaxSkew
	}
	return p.MaxSkew
}

// DomainOf returns the domain that has the class among its options, or "" if no domain has the class.
func (p *Placement) DomainOf(className string) string {
	if p == nil || className == "" {
		return ""
	}
	for i := range p.Domains {
		for _, option := range p.Domains[i].Options {
			if option.ClassName == className {
				return p.Domains[i].Name
			}
		}
	}
	return ""
}

// ClassNames returns the classes of all options, in the order of domains and options. It returns nil for a nil
// Placement.
func (p *Placement) ClassNames() []string {
	if p == nil {
		return nil
	}
	var names []string
	for i := range p.Domains {
		for _, option := range p.Domains[i].Options {
			names = append(names, option.ClassName)
		}
	}
	return names
}

// PlacementOptionStatus shows the machines of an option of a placement.
type PlacementOptionStatus struct {
	// domain is the name of the domain.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Domain string `json:"domain"`

	// className is the name of the MachineClass.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ClassName string `json:"className"`

	// replicas is the number of machines of all revisions that have this class and are not being deleted.
	// +required
	// +kubebuilder:validation:Minimum=0
	Replicas int32 `json:"replicas"`

	// readyReplicas is the number of these machines that are Ready.
	// +required
	// +kubebuilder:validation:Minimum=0
	ReadyReplicas int32 `json:"readyReplicas"`

	// exhaustedSince is the time since which the cloud has had no capacity for the class. The field is not set if the
	// cloud has capacity.
	// +optional
	ExhaustedSince *metav1.Time `json:"exhaustedSince,omitempty"`

	// retryTime is the capacityRetryTime of the class.
	// +optional
	RetryTime *metav1.Time `json:"retryTime,omitempty"`
}
