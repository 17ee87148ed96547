// Package conditionlimit keeps the number of conditions of an object within the limit of its schema.
//
// Any client that may write a status can add conditions. With too many conditions, the API server rejects every status
// update by a controller.
package conditionlimit

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Kind contains the limits for the status.conditions of one Kubernetes kind. The condition types in Own are written by
// Machinist. The field Most is the maximum number of conditions that the schema allows.
type Kind struct {
	Own  []string
	Most int
}

// Kinds of the API. Fleet stands for MachineSets and MachineDeployments.
var (
	Machine = Kind{Most: 32, Own: []string{
		v1beta1.ConditionLaunched, v1beta1.ConditionRegistered, v1beta1.ConditionNodeHealthy, v1beta1.ConditionUpToDate,
		v1beta1.ConditionDrained, v1beta1.ConditionDrainExtended, v1beta1.ConditionVolumesDetached, v1beta1.ConditionReady,
		v1beta1.ConditionDeleting, v1beta1.ConditionPaused, v1beta1.ConditionPreserved, v1beta1.ConditionInterruptionNotice,
		v1beta1.ConditionRemediationRequested, v1beta1.ConditionCertificateApproved,
		v1beta1.ConditionOwned, v1beta1.ConditionPowerStateReached, v1beta1.ConditionRebooted,
	}}
	Fleet = Kind{Most: 32, Own: []string{
		v1beta1.ConditionScalingUp, v1beta1.ConditionScalingDown, v1beta1.ConditionReplicaFailure,
		v1beta1.ConditionAdoptionSkipped,
		v1beta1.ConditionFrozen, v1beta1.ConditionMachinesReady, v1beta1.ConditionAvailable, v1beta1.ConditionProgressing,
		v1beta1.ConditionRollingOut, v1beta1.ConditionDeleting, v1beta1.ConditionReady, v1beta1.ConditionPaused,
		v1beta1.ConditionReconciling, v1beta1.ConditionStalled, v1beta1.ConditionScalableFromZero,
		v1beta1.ConditionBalanced, v1beta1.ConditionHibernated,
	}}
	Class = Kind{Most: 16, Own: []string{v1beta1.ConditionReady, v1beta1.ConditionDeleting,
		v1beta1.ConditionCapacityAvailable,
		v1beta1.ConditionOrphanRemovalBlocked, v1beta1.ConditionUserDataWarning,
		v1beta1.ConditionUserDataChanged, v1beta1.ConditionAccountChanged, v1beta1.ConditionJoinBlocked}}
	Budget      = Kind{Most: 16, Own: []string{v1beta1.ConditionValid}}
	HealthCheck = Kind{Most: 16, Own: []string{v1beta1.ConditionRemediationAllowed,
		v1beta1.ConditionRemediationTemplateReady}}
)

// Apply makes room for all conditions that Machinist writes. If the list is too long, Apply removes the last conditions
// of other writers. The order of the remaining conditions does not change.
func (k Kind) Apply(list []metav1.Condition) []metav1.Condition {
	capacity, others := k.Most-len(k.Own), 0
	return slices.DeleteFunc(list, func(c metav1.Condition) bool {
		if slices.Contains(k.Own, c.Type) {
			return false
		}
		others++
		return others > capacity
	})
}
