package machineset

import (
	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// hibernation is why a hibernated set neither creates nor replaces machines.
var hibernation = ConditionReason{v1beta1.ReasonHibernated,
	"spec.hibernated stops all machines. No machine is created or replaced until the hibernation ends."}

// hibernate stops a machine of a hibernated set, and starts it after the hibernation. to is the machine as the plan
// already changes it, or nil. A machine that a user has stopped stays stopped.
func hibernate(set *v1beta1.MachineSet, m, to *v1beta1.Machine) *v1beta1.Machine {
	change := has(m.Annotations, v1beta1.AnnotationHibernated)
	if set.Spec.Hibernated {
		change = m.Spec.PowerState != v1beta1.PowerStopped
	}
	if !change || !machinestate.IsLive(m) {
		return to
	}
	if to == nil {
		to = m.DeepCopy()
	}
	if set.Spec.Hibernated {
		if to.Annotations == nil {
			to.Annotations = map[string]string{}
		}
		to.Annotations[v1beta1.AnnotationHibernated], to.Spec.PowerState = "", v1beta1.PowerStopped
		return to
	}
	delete(to.Annotations, v1beta1.AnnotationHibernated)
	to.Spec.PowerState = v1beta1.PowerRunning
	return to
}
