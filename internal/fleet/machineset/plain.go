package machineset

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// plainAnnotations are those with which a machine is not plain: each asks for something.
var plainAnnotations = []string{v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationReplace,
	v1beta1.AnnotationDoNotDisrupt, v1beta1.AnnotationPreserve, v1beta1.AnnotationPreservedUntil}

// isPlain reports whether a machine is as its set wants it, and nothing about it asks for a decision: it runs, is
// available and up to date, and has all that the template says. Until it or the template changes, a set only counts it.
func isPlain(set *v1beta1.MachineSet, t *template, selector labels.Selector, m *v1beta1.Machine, now time.Time) bool {
	return machinestate.Live(m) && machinestate.Running(m) && selector.Matches(labels.Set(m.Labels)) && t.inSync(m) &&
		machinestate.Available(m, set.Spec.MinReadySeconds, now) &&
		machinestate.UpToDate(m) && !handover.Updating(m) && !machinestate.Interrupted(m) &&
		meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested) == nil &&
		machinestate.Unlaunchable(m) == nil &&
		!slices.ContainsFunc(plainAnnotations, func(key string) bool { return has(m.Annotations, key) })
}

// plainMachines remembers which versions of a set's machines are plain. Most machines of a large set are, and do not
// change from one pass to the next.
type plainMachines struct {
	// set is the set as they are plain for it, and at when they were last sorted.
	set *v1beta1.MachineSet
	at  time.Time
	// known has the resource versions by UID.
	known map[types.UID]string
}

// sort returns the machines that are plain, and the others. A set that is invalid, or whose machines expire, has no
// plain machines.
func (r *plainMachines) sort(set *v1beta1.MachineSet, machines []*v1beta1.Machine,
	now time.Time) (plain, others []*v1beta1.Machine) {
	selector, unusable := selectorOf(set)
	if unusable.Reason != "" || set.Spec.Template.Spec.ExpireAfter != nil {
		*r = plainMachines{}
		return nil, machines
	}
	if r.set == nil || !samePlain(&r.set.Spec, &set.Spec) || now.Before(r.at) { // The clock may be set back.
		r.known = make(map[types.UID]string, len(machines))
	}
	r.set, r.at = set, now
	t := templateOf(set)
	plain = make([]*v1beta1.Machine, 0, len(machines))
	for _, m := range machines {
		switch {
		case r.has(m):
			plain = append(plain, m)
		case isPlain(set, &t, selector, m, now):
			plain = append(plain, m)
			r.known[m.UID] = m.ResourceVersion
		default:
			others = append(others, m)
		}
	}
	if len(r.known) > 2*len(plain) { // Most are gone, or plain no longer.
		r.known = make(map[types.UID]string, len(plain))
		for _, m := range plain {
			r.known[m.UID] = m.ResourceVersion
		}
	}
	return plain, others
}

// samePlain reports whether the same machines are plain for both.
func samePlain(a, b *v1beta1.MachineSetSpec) bool {
	return a.MinReadySeconds == b.MinReadySeconds && equality.Semantic.DeepEqual(a.Selector, b.Selector) &&
		equality.Semantic.DeepEqual(a.Template, b.Template)
}

// has reports whether this version of the machine is known to be plain. A nil *plainMachines knows none.
func (r *plainMachines) has(m *v1beta1.Machine) bool {
	if r == nil {
		return false
	}
	version, known := r.known[m.UID]
	return known && version == m.ResourceVersion
}
