package machineset

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/placement/places"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// requestAnnotations holds the annotations that request an action or exception. A machine with one of these annotations
// is not steady.
var requestAnnotations = []string{v1beta1.AnnotationDeleteMachine, v1beta1.AnnotationReplace,
	v1beta1.AnnotationDoNotDisrupt, v1beta1.AnnotationPreserve, v1beta1.AnnotationPreservedUntil,
	v1beta1.AnnotationHibernated}

// isSteady reports whether a machine is Running, available, up to date and in sync, and needs no decision. A pass
// counts a steady machine without further checks, until the machine or the template changes.
func isSteady(set *v1beta1.MachineSet, t *template, selector labels.Selector, m *v1beta1.Machine, now time.Time) bool {
	return !set.Spec.Hibernated && machinestate.IsLive(m) && machinestate.IsRunning(m) &&
		selector.Matches(labels.Set(m.Labels)) && t.inSync(m) &&
		machinestate.IsAvailable(m, set.Spec.MinReadySeconds, now) &&
		machinestate.IsUpToDate(m) && !handover.Updating(m) && !machinestate.IsInterrupted(m) &&
		meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested) == nil &&
		machinestate.UnlaunchableCondition(m) == nil &&
		!slices.ContainsFunc(requestAnnotations, func(key string) bool { return has(m.Annotations, key) }) &&
		(t.placement == nil || m.Labels[v1beta1.LabelPlacementDomain] == places.Of(m, t.placement).Domain)
}

// steadyMachines remembers for which machines of a set isSteady was true, so that it need not be called again. In a
// large set, most machines are steady.
type steadyMachines struct {
	// set is the MachineSet at the last call of sort, and sortTime is the time of that call.
	set      *v1beta1.MachineSet
	sortTime time.Time
	// versions maps the UIDs of the machines to their resource versions.
	versions map[types.UID]string
}

// sort divides the machines into steady and other machines. If the set is invalid or its machines expire, no machine is
// steady.
func (r *steadyMachines) sort(set *v1beta1.MachineSet, machines []*v1beta1.Machine,
	now time.Time) (steady, others []*v1beta1.Machine) {
	selector, unusable := selectorOf(set)
	if unusable.Reason != "" || set.Spec.Template.Spec.ExpireAfter != nil {
		*r = steadyMachines{}
		return nil, machines
	}
	// The clock may have been set back.
	if r.set == nil || !sameSteadinessCriteria(&r.set.Spec, &set.Spec) || now.Before(r.sortTime) {
		r.versions = make(map[types.UID]string, len(machines))
	}
	r.set, r.sortTime = set, now
	t := templateOf(set)
	steady = make([]*v1beta1.Machine, 0, len(machines))
	for _, m := range machines {
		switch {
		case r.contains(m):
			steady = append(steady, m)
		case isSteady(set, &t, selector, m, now):
			steady = append(steady, m)
			r.versions[m.UID] = m.ResourceVersion
		default:
			others = append(others, m)
		}
	}
	// More than half of the remembered machines are gone or no longer steady, so forget these machines.
	if len(r.versions) > 2*len(steady) {
		r.versions = make(map[types.UID]string, len(steady))
		for _, m := range steady {
			r.versions[m.UID] = m.ResourceVersion
		}
	}
	return steady, others
}

func sameSteadinessCriteria(a, b *v1beta1.MachineSetSpec) bool {
	return a.Hibernated == b.Hibernated && a.MinReadySeconds == b.MinReadySeconds &&
		equality.Semantic.DeepEqual(a.Selector, b.Selector) &&
		equality.Semantic.DeepEqual(a.Template, b.Template) && equality.Semantic.DeepEqual(a.Placement, b.Placement)
}

// contains returns true if isSteady was true for the machine's current resource version. If r is nil, the result is
// false.
func (r *steadyMachines) contains(m *v1beta1.Machine) bool {
	if r == nil {
		return false
	}
	version, known := r.versions[m.UID]
	return known && version == m.ResourceVersion
}
