package why

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"machinist.dev/machinist/api/v1beta1"
)

// unownedFindings explains why no set owns a machine. It returns findings only if a set owned the machine before, or if
// the selector of a set matches the machine.
func unownedFindings(f Facts) []Finding {
	m := f.Machine
	if m.DeletionTimestamp != nil || metav1.GetControllerOfNoCopy(m) != nil {
		return nil
	}
	var findings []Finding
	for i := range f.Sets {
		s := &f.Sets[i]
		selector, err := metav1.LabelSelectorAsSelector(&s.Spec.Selector)
		c := meta.FindStatusCondition(s.Status.Conditions, v1beta1.ConditionAdoptionSkipped)
		if err == nil && !selector.Empty() && selector.Matches(labels.Set(m.Labels)) && c != nil &&
			c.Status == metav1.ConditionTrue {
			findings = append(findings, fleetFinding("machineset/"+s.Name, s.Namespace, c))
		}
	}
	if from := m.Annotations[v1beta1.AnnotationReleasedFrom]; from != "" && len(findings) == 0 {
		findings = append(findings, releasedFinding(m, setsOf(f.Sets, from)))
	}
	return findings
}

// setsOf returns the sets that belong to an owner, which is identified by its UID. For the UID of a deployment, setsOf
// returns all sets of the deployment. For the UID of a set, it returns this set.
func setsOf(sets []v1beta1.MachineSet, owner string) (out []*v1beta1.MachineSet) {
	for i := range sets {
		if c := metav1.GetControllerOfNoCopy(&sets[i]); string(sets[i].UID) == owner || c != nil && string(c.UID) == owner {
			out = append(out, &sets[i])
		}
	}
	return out
}

// releasedFinding explains that a set released the machine, because its labels no longer matched. The machine does
// not record the name of its former set. Therefore the finding describes the set for whose selector the machine lacks
// the fewest labels.
func releasedFinding(m *v1beta1.Machine, sets []*v1beta1.MachineSet) Finding {
	const consequences = " The machine is not replaced when it fails, and not updated by rollouts. It still counts towards the maximum number of machines of its former owner."
	f := Finding{Object: "machine/" + m.Name, Reason: NoOwner,
		Description:  "The machine has no owner. Its labels did not match the selector of its set, so the set released it. The set no longer exists." + consequences,
		Instructions: "To delete the machine: kubectl delete machines.machinist.dev NAME"}
	if len(sets) == 0 {
		return f
	}
	set := slices.MinFunc(sets, func(a, b *v1beta1.MachineSet) int {
		return cmp.Or(len(missingLabels(m, a))-len(missingLabels(m, b)), cmp.Compare(a.Name, b.Name))
	})
	f.Description = fmt.Sprintf("MachineSet %s released the machine, because the labels of the machine did not match the selector %s.%s",
		set.Name, metav1.FormatLabelSelector(&set.Spec.Selector), consequences)
	f.NextStep = fmt.Sprintf("MachineSet %s adopts the machine when the labels match again and the set needs another machine.",
		set.Name)
	if missing := missingLabels(m, set); len(missing) > 0 {
		f.Instructions = "Delete the machine, or restore its labels: kubectl label --overwrite machines.machinist.dev NAME " +
			strings.Join(missing, " ")
	}
	return f
}

// missingLabels returns the labels that a set's selector requires and a machine lacks, as key=value.
func missingLabels(m *v1beta1.Machine, set *v1beta1.MachineSet) (missing []string) {
	wanted := set.Spec.Selector.MatchLabels
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, ok := m.Labels[key]; !ok || value != wanted[key] {
			missing = append(missing, key+"="+wanted[key])
		}
	}
	return missing
}
