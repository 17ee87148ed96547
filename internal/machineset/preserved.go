package machineset

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/preservation"
	"machinist.dev/machinist/internal/wording"
)

// setAsidePoll is how often a set that makes no machines, because too many are kept aside, looks whether some are gone: no
// event of theirs concerns it.
const preservedPoll = time.Minute

// notToBeSetAside returns the machines that are not about to be set aside. Of the others their own controller says that
// they are no longer the set's, and only then may the set replace them.
func withoutDueForPreservation(machines []*v1beta1.Machine) []*v1beta1.Machine {
	if !slices.ContainsFunc(machines, preservation.Due) {
		return machines
	}
	return slices.DeleteFunc(slices.Clone(machines), preservation.Due)
}

// wereOurs counts, of machines without a controller, those that were set aside and would match the set if they still had
// the labels that were taken from them.
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
		if m := &orphans[i]; live(m) && preserved(m) && selector.Matches(labels.Set(m.Labels)) {
			n++
		}
	}
	return n
}

// tooMany says why no more machines are made.
func tooManyMachines(ceiling, preserved int) Reason {
	most := wording.Count(ceiling, "machine")
	message := fmt.Sprintf("No more than %s may exist, those being deleted included: deletion does not keep up.", most)
	if preserved > 0 {
		message = fmt.Sprintf("No more than %s may exist, those included that are being deleted or, as %d are, kept aside by the annotation %s.",
			most, preserved, v1beta1.AnnotationPreserve)
	}
	return Reason{v1beta1.ReasonTooManyMachines, message}
}
