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

// unowned says why no set owns a machine that one owned before, or whose labels one selects. It returns nil for any
// other machine.
func unowned(f Facts) []Finding {
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
			findings = append(findings, fleetFinding("machineset/"+s.Name, c))
		}
	}
	if from := m.Annotations[v1beta1.AnnotationReleasedFrom]; from != "" && len(findings) == 0 {
		findings = append(findings, released(m, siblings(f.Sets, from)))
	}
	return findings
}

// siblings returns the sets of the owner with a UID: of a deployment, or a set alone.
func siblings(sets []v1beta1.MachineSet, owner string) (out []*v1beta1.MachineSet) {
	for i := range sets {
		if c := metav1.GetControllerOfNoCopy(&sets[i]); string(sets[i].UID) == owner || c != nil && string(c.UID) == owner {
			out = append(out, &sets[i])
		}
	}
	return out
}

// released is the finding about a machine that lost the labels of its set. The set that it lacks the fewest labels of
// is taken for the one that released it.
func released(m *v1beta1.Machine, sets []*v1beta1.MachineSet) Finding {
	const remains = " Nothing replaces it when it fails, no rollout reaches it, and it counts towards the most machines that its former owner may have."
	f := Finding{About: "machine/" + m.Name, Reason: NoOwner,
		What: "The set that owned it released it, because its labels did not match, and does not exist any more." + remains,
		Do:   "Delete it: kubectl delete machines.machinist.dev NAME"}
	if len(sets) == 0 {
		return f
	}
	set := slices.MinFunc(sets, func(a, b *v1beta1.MachineSet) int {
		return cmp.Or(len(missingLabels(m, a))-len(missingLabels(m, b)), cmp.Compare(a.Name, b.Name))
	})
	f.What = fmt.Sprintf("MachineSet %s released it, because its labels did not match the selector %s.%s", set.Name,
		metav1.FormatLabelSelector(&set.Spec.Selector), remains)
	f.Ends = fmt.Sprintf("MachineSet %s adopts it when its labels match again and a machine is missing.", set.Name)
	if missing := missingLabels(m, set); len(missing) > 0 {
		f.Do = "Delete it, or restore its labels: kubectl label --overwrite machines.machinist.dev NAME " + strings.Join(missing, " ")
	}
	return f
}

// missingLabels returns the labels that a set selects and a machine does not have, as key=value.
func missingLabels(m *v1beta1.Machine, set *v1beta1.MachineSet) (missing []string) {
	wanted := set.Spec.Selector.MatchLabels
	for _, key := range slices.Sorted(maps.Keys(wanted)) {
		if value, ok := m.Labels[key]; !ok || value != wanted[key] {
			missing = append(missing, key+"="+wanted[key])
		}
	}
	return missing
}
