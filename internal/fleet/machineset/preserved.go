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

// preservedPoll is how often a set that creates no machines, because too many are preserved or released, checks whether
// some are gone: it gets no events of machines without an owner.
const preservedPoll = time.Minute

// withoutDueForPreservation returns the machines without those that are about to be preserved. Their own controller
// takes these from the set, and only then may the set replace them.
func withoutDueForPreservation(machines []*v1beta1.Machine) []*v1beta1.Machine {
	if !slices.ContainsFunc(machines, preservation.Due) {
		return machines
	}
	return slices.DeleteFunc(slices.Clone(machines), preservation.Due)
}

// countPreserved counts the orphans that are preserved and would match the set if they still had the labels that
// preservation removes.
func countPreserved(set *v1beta1.MachineSet, orphans []v1beta1.Machine) (n int) {
	left := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	taken := func(key string) bool {
		return key == v1beta1.LabelTemplateHash || key == v1beta1.LabelMachineSet
	}
	for key, value := range set.Spec.Selector.MatchLabels {
		if !taken(key) {
			left.MatchLabels[key] = value
		}
	}
	for _, requirement := range set.Spec.Selector.MatchExpressions {
		if !taken(requirement.Key) {
			left.MatchExpressions = append(left.MatchExpressions, requirement)
		}
	}
	selector, err := metav1.LabelSelectorAsSelector(left)
	if err != nil || selector.Empty() {
		return 0
	}
	for i := range orphans {
		if m := &orphans[i]; machinestate.Live(m) && preservation.Preserved(m) && selector.Matches(labels.Set(m.Labels)) {
			n++
		}
	}
	return n
}

// origin is the UID of whoever asks for the set's machines: its deployment, or the set alone.
func origin(set *v1beta1.MachineSet) string {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil {
		return string(owner.UID)
	}
	return string(set.UID)
}

// countReleased counts the orphans that lost the labels of the set, or of another one of its deployment, and still run.
// If somebody takes the labels off whatever the set makes, it would otherwise make machines without end.
func countReleased(set *v1beta1.MachineSet, orphans []v1beta1.Machine) (n int) {
	from := origin(set)
	for i := range orphans {
		if m := &orphans[i]; machinestate.Live(m) && !preservation.Preserved(m) &&
			m.Annotations[v1beta1.AnnotationReleasedFrom] == from {
			n++
		}
	}
	return n
}

// tooManyMachines says why no more machines are created.
func tooManyMachines(ceiling, preserved, released int) Reason {
	most := wording.Count(ceiling, "machine")
	message := fmt.Sprintf("No more than %s may exist, those being deleted included: deletion does not keep up.", most)
	if preserved > 0 {
		message = fmt.Sprintf("No more than %s may exist, those being deleted and %d preserved by the annotation %s included.",
			most, preserved, v1beta1.AnnotationPreserve)
	}
	if released > 0 {
		message = fmt.Sprintf(
			"No more than %s may exist, those being deleted and %d that lost the labels of the selector included. "+
				"Find out who changes labels, then delete the machines with the annotation %s or give them their labels back.",
			most, released, v1beta1.AnnotationReleasedFrom)
	}
	return Reason{v1beta1.ReasonTooManyMachines, message}
}
