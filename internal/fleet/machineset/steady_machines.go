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

// requestAnnotations contains the annotations that request an action or an exception from the set. A machine with
// one of these annotations is not steady.
var requestAnnotations = []string{v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationReplace,
	v1beta1.AnnotationDoNotDisrupt, v1beta1.AnnotationPreserve, v1beta1.AnnotationPreservedUntil}

// isSteady reports whether a machine is steady: the machine is as its set wants it, and no decision about it is
// needed. A steady machine is Running, available and up to date, and in sync with the template. Until the machine
// or the template changes, the set only counts this machine.
func isSteady(set *v1beta1.MachineSet, t *template, selector labels.Selector, m *v1beta1.Machine, now time.Time) bool {
	return machinestate.Live(m) && machinestate.Running(m) && selector.Matches(labels.Set(m.Labels)) && t.inSync(m) &&
		machinestate.Available(m, set.Spec.MinReadySeconds, now) &&
		machinestate.UpToDate(m) && !handover.Updating(m) && !machinestate.Interrupted(m) &&
		meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested) == nil &&
		machinestate.Unlaunchable(m) == nil &&
		!slices.ContainsFunc(requestAnnotations, func(key string) bool { return has(m.Annotations, key) })
}

// steadyMachines contains the steady machines of a set, each with its resource version. Most machines of a large
// set are steady and do not change between two passes, so they need not be checked again.
type steadyMachines struct {
	// set is the version of the set for which the machines are steady. at is the time at which sort was last
	// called.
	set *v1beta1.MachineSet
	at  time.Time
	// known contains the resource versions of the steady machines, by UID.
	known map[types.UID]string
}

// sort divides machines into steady machines and other machines. If a set is invalid, or if its machines expire, no
// machine of the set is steady.
func (r *steadyMachines) sort(set *v1beta1.MachineSet, machines []*v1beta1.Machine,
	now time.Time) (steady, others []*v1beta1.Machine) {
	selector, unusable := selectorOf(set)
	if unusable.Reason != "" || set.Spec.Template.Spec.ExpireAfter != nil {
		*r = steadyMachines{}
		return nil, machines
	}
	if r.set == nil || !sameSteadinessCriteria(&r.set.Spec, &set.Spec) || now.Before(r.at) { // The clock may be set back.
		r.known = make(map[types.UID]string, len(machines))
	}
	r.set, r.at = set, now
	t := templateOf(set)
	steady = make([]*v1beta1.Machine, 0, len(machines))
	for _, m := range machines {
		switch {
		case r.contains(m):
			steady = append(steady, m)
		case isSteady(set, &t, selector, m, now):
			steady = append(steady, m)
			r.known[m.UID] = m.ResourceVersion
		default:
			others = append(others, m)
		}
	}
	if len(r.known) > 2*len(steady) { // Most of them are gone or no longer steady, so forget those.
		r.known = make(map[types.UID]string, len(steady))
		for _, m := range steady {
			r.known[m.UID] = m.ResourceVersion
		}
	}
	return steady, others
}

// sameSteadinessCriteria reports whether a machine that is steady for one spec is also steady for the other.
func sameSteadinessCriteria(a, b *v1beta1.MachineSetSpec) bool {
	return a.MinReadySeconds == b.MinReadySeconds && equality.Semantic.DeepEqual(a.Selector, b.Selector) &&
		equality.Semantic.DeepEqual(a.Template, b.Template)
}

// contains reports whether the machine is known to be steady in this version. A nil *steadyMachines contains no
// machines.
func (r *steadyMachines) contains(m *v1beta1.Machine) bool {
	if r == nil {
		return false
	}
	version, known := r.known[m.UID]
	return known && version == m.ResourceVersion
}
