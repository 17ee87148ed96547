package machineset

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
	"machinist.dev/machinist/internal/platform/wording"
)

// preservedPoll is how often a set without room for new machines checks whether preserved or released machines are
// gone. The set gets no events about machines without an owner.
const preservedPoll = time.Minute

// withoutDueForPreservation omits machines that are about to be preserved. The controller of Machines removes them
// from the set, and until then the set must not replace these machines.
func withoutDueForPreservation(machines []*v1beta1.Machine) []*v1beta1.Machine {
	if !slices.ContainsFunc(machines, preservation.MustPreserve) {
		return machines
	}
	return slices.DeleteFunc(slices.Clone(machines), preservation.MustPreserve)
}

func countPreserved(set *v1beta1.MachineSet, orphans []v1beta1.Machine) (n int) {
	reduced := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	removed := func(key string) bool {
		return key == v1beta1.LabelTemplateHash || key == v1beta1.LabelMachineSet
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if !removed(key) {
			reduced.MatchLabels[key] = value
		}
	}
	for _, requirement := range set.Spec.Selector.MatchExpressions {
		if !removed(requirement.Key) {
			reduced.MatchExpressions = append(reduced.MatchExpressions, requirement)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(reduced)
	if err != nil || selector.Empty() {
		return 0
	}
	for i := range orphans {
		if m := &orphans[i]; machinestate.IsLive(m) && preservation.IsPreserved(m) && selector.Matches(labels.Set(m.Labels)) {
			n++
		}
	}
	return n
}

// fleetUID returns the UID of the set's deployment, or of a set without deployment.
func fleetUID(set *v1beta1.MachineSet) string {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		return string(owner.UID)
	}
	return string(set.UID)
}

// countReleased counts live orphans that a set of the deployment released because their labels changed. Otherwise a
// client that removes labels from every new machine would make the set create machines endlessly.
func countReleased(set *v1beta1.MachineSet, orphans []v1beta1.Machine) (n int) {
	from := fleetUID(set)
	for i := range orphans {
		if m := &orphans[i]; machinestate.IsLive(m) && !preservation.IsPreserved(m) &&
			m.Annotations[v1beta1.AnnotationReleasedFrom] == from {
			n++
		}
	}
	return n
}

func tooManyMachines(ceiling, preserved, released int) ConditionReason {
	limit := fmt.Sprintf("At most %s may exist, including machines that are being deleted",
		wording.Count(ceiling, "machine"))
	message := limit + ". The set creates its missing machines when enough of the existing machines are gone."
	if preserved > 0 {
		message = fmt.Sprintf("%s and %d preserved by the annotation %s. "+
			"The set creates its missing machines when enough of the existing machines are gone.",
			limit, preserved, v1beta1.AnnotationPreserve)
	}
	if released > 0 {
		message = fmt.Sprintf("%s and %d that lost the labels of the selector. Find out which client changes the labels. "+
			"Then delete the machines with the annotation %s, or restore their labels.",
			limit, released, v1beta1.AnnotationReleasedFrom)
	}
	return ConditionReason{v1beta1.ReasonTooManyMachines, message}
}
