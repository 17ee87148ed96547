package machinedeployment

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// hibernationFreeze is the message of the condition Frozen of a hibernated deployment.
const hibernationFreeze = "spec.hibernated stops all machines. No machine is created or replaced, and no rollout advances, " +
	"until the hibernation ends."

// writeHibernated writes how many machines are stopped because of the hibernation. After the hibernation, the condition
// stays until all machines have been started.
func (c conditions) writeHibernated(v *view, hibernated bool) {
	var all, stopped, starting int
	for _, set := range v.sets {
		for _, m := range v.machines[set.UID] {
			if !m.DeletionTimestamp.IsZero() || machinestate.HasVanished(m) {
				continue // There is no instance to stop.
			}
			all++
			switch {
			case isStopped(m):
				stopped++
			case m.Spec.PowerState == v1beta1.PowerRunning && m.Status.Power != nil:
				starting++
			}
			if _, marked := m.Annotations[v1beta1.AnnotationHibernated]; marked && !hibernated {
				starting++
			}
		}
	}
	switch {
	case hibernated:
		c.set(v1beta1.ConditionHibernated, stopped == all, v1beta1.ReasonHibernated, v1beta1.ReasonHibernating,
			fmt.Sprintf("%d of %s are stopped.", stopped, wording.Count(int32(all), "machine")))
	case c.find(v1beta1.ConditionHibernated) == nil:
	case starting > 0:
		c.put(metav1.Condition{Type: v1beta1.ConditionHibernated, Status: metav1.ConditionFalse,
			Reason: v1beta1.ReasonWakingUp, Message: fmt.Sprintf("%s are being started.", wording.Count(int32(starting), "machine"))})
	default:
		meta.RemoveStatusCondition(&c.status.Conditions, v1beta1.ConditionHibernated)
	}
}

// isStopped reports whether Machinist has stopped the machine.
func isStopped(m *v1beta1.Machine) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPowerStateReached)
	return c != nil && c.Reason == v1beta1.ReasonStopped
}
