package machinedeployment

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/versionskew"
	"machinist.dev/machinist/internal/platform/wording"
)

// With spec.versionSteps, a rollout over several minor versions is a sequence of rollouts. Each pass derives the
// present step from the stored sets and machines, so a restart or another leader continues with the same step:
//
//   - The step follows the lowest minor version of all sets that have or may create machines. Therefore, no step begins
//     before all machines of earlier steps are gone.
//   - The step is not lower than the highest minor version of these sets, so no machine returns to an earlier version.
//   - The set of a step has an annotation. While this set is the newest and not all its machines are available, the
//     step is not complete.

// versionStep is the present step of a rollout.
type versionStep struct {
	// deployment is the deployment with the version and the class of the step.
	deployment *v1beta1.MachineDeployment
	// isLast is true if the step is the template of the deployment itself.
	isLast bool
	// status describes the step. It is nil if all machines have the minor version of the template, or if the step is not
	// in spec.versionSteps.
	status *v1beta1.VersionStepStatus
	// blocked explains why the rollout cannot continue with a version, or is empty.
	blocked string
}

// prefix returns the beginning of messages about the step.
func (s versionStep) prefix() string {
	if s.status == nil {
		return ""
	}
	return fmt.Sprintf("Step %d of %d: %s. ", s.status.Number, s.status.Total, s.status.Version)
}

// usedSet is a set that has or may create machines.
type usedSet struct {
	*v1beta1.MachineSet
	machines []*v1beta1.Machine
	// isEmpty is true if the set has no machines, but may still create some.
	isEmpty bool
	version string
	minor   versionskew.Minor
}

// findStep returns the present step of the rollout. If there are no steps or no machines, it is the template of the
// deployment itself.
func findStep(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, machines map[types.UID][]*v1beta1.Machine,
	now time.Time) versionStep {
	step := versionStep{deployment: d, isLast: true}
	target, ok := versionskew.MinorOf(d.Spec.Template.Spec.Version)
	used, newest := setsInUse(d, sets, machines)
	if len(d.Spec.VersionSteps) == 0 || !ok || len(used) == 0 {
		return step
	}
	low, high := used[0], used[0]
	for _, set := range used {
		if set.minor.Compare(low.minor) < 0 {
			low = set
		}
		if !set.isEmpty && (high.isEmpty || set.minor.Compare(high.minor) > 0) {
			high = set
		}
	}
	wanted := low.minor.Next()
	if high.minor.Compare(wanted) > 0 {
		wanted = high.minor // A rollout without steps has begun.
	}
	if wanted.Compare(target) > 0 || wanted.Major != target.Major {
		wanted = target
	}
	listed := slices.IndexFunc(d.Spec.VersionSteps, func(s v1beta1.VersionStep) bool { return isOfMinor(s.Version, wanted) })
	if newest != nil && newest.minor == low.minor && low.minor == high.minor && low.minor != target &&
		!isRolledOut(d, used, *newest, now) {
		switch {
		case isVersionStep(newest.MachineSet) && low.minor.Compare(target) < 0:
			wanted = low.minor
			listed = slices.IndexFunc(d.Spec.VersionSteps, func(s v1beta1.VersionStep) bool { return isOfMinor(s.Version, wanted) })
		case updatesInPlace(d, *newest):
			// The kubelets of the machines that are being updated may still have an earlier version.
			wanted, listed = low.minor, -1
		}
	}
	step.isLast = wanted == target
	switch {
	case step.isLast:
		listed = len(d.Spec.VersionSteps)
	case listed >= 0:
		step.deployment = withVersion(d, d.Spec.VersionSteps[listed])
	case newest != nil && newest.minor == wanted:
		step.deployment = withVersionOf(d, newest.MachineSet)
	default:
		step.isLast = true
		step.blocked = fmt.Sprintf("a version of %s is missing in spec.versionSteps: the machines have %s, and "+
			"spec.template.spec.version is %s. Add a version of %s to spec.versionSteps", wanted, low.version,
			d.Spec.Template.Spec.Version, wanted)
		return step
	}
	if listed >= 0 && low.minor.Compare(target) < 0 {
		step.status = &v1beta1.VersionStepStatus{Number: int32(listed) + 1, Total: int32(len(d.Spec.VersionSteps)) + 1,
			Version: step.deployment.Spec.Template.Spec.Version}
	}
	if d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace {
		for _, set := range used {
			if !set.isEmpty && !set.minor.IsAdjacent(wanted) {
				step.blocked = fmt.Sprintf("the strategy InPlace changes the version of a machine by at most one minor version at a "+
					"time, so machines of %s cannot become %s: set spec.template.spec.version to a version in between first, or use "+
					"another strategy", set.version, step.deployment.Spec.Template.Spec.Version)
			}
		}
	}
	return step
}

// setsInUse returns the sets that have or may create machines. newest is the set of the newest revision, or nil if it
// is not in use. The newest set is in use before it has machines if it is a step, such as with the strategy Recreate.
// The machines of a set without a version have the version that their kubelets report.
func setsInUse(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet,
	machines map[types.UID][]*v1beta1.Machine) (used []usedSet, newest *usedSet) {
	var last *v1beta1.MachineSet
	for _, set := range sets {
		if set.DeletionTimestamp.IsZero() && (last == nil || revisionOf(set) > revisionOf(last)) {
			last = set
		}
	}
	add := func(set *v1beta1.MachineSet, isEmpty bool) {
		in := usedSet{MachineSet: set, machines: machines[set.UID], isEmpty: isEmpty,
			version: set.Spec.Template.Spec.Version}
		for _, m := range in.machines {
			if minor, ok := versionskew.MinorOf(m.Status.Version); set.Spec.Template.Spec.Version == "" && ok &&
				(in.version == "" || minor.Compare(in.minor) < 0) {
				in.version, in.minor = m.Status.Version, minor
			}
		}
		var ok bool
		if in.minor, ok = versionskew.MinorOf(in.version); !ok {
			return
		}
		used = append(used, in)
		if set == last {
			newest = &in
		}
	}
	for _, set := range sets {
		exists := set.DeletionTimestamp.IsZero()
		switch {
		// The status may count machines that the cache does not contain yet.
		case len(machines[set.UID]) > 0, set.Status.Replicas > 0, exists && set.ReplicasOrDefault() > 0:
			add(set, false)
		case exists && set.Generation > 1 && set.Status.ObservedGeneration < set.Generation,
			set == last && isVersionStep(set) && d.ReplicasOrDefault() > 0:
			add(set, true)
		}
	}
	return used, newest
}

// isRolledOut reports whether only the given set is in use, and all its machines are available.
func isRolledOut(d *v1beta1.MachineDeployment, used []usedSet, set usedSet, now time.Time) bool {
	replicas := placeable(d, set.machines)
	var live, available int32
	for _, m := range set.machines {
		if !m.DeletionTimestamp.IsZero() {
			continue
		}
		live++
		if machinestate.IsAvailable(m, d.Spec.MinReadySeconds, now) &&
			!(d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace && handover.Updating(m)) {
			available++
		}
	}
	return len(used) == 1 && set.ReplicasOrDefault() == replicas && live == replicas && available == replicas
}

func updatesInPlace(d *v1beta1.MachineDeployment, set usedSet) bool {
	return d.Spec.Strategy.TypeOrDefault() == v1beta1.StrategyInPlace &&
		slices.ContainsFunc(set.machines, func(m *v1beta1.Machine) bool {
			return m.DeletionTimestamp.IsZero() && handover.Updating(m)
		})
}

func isOfMinor(version string, minor versionskew.Minor) bool {
	of, ok := versionskew.MinorOf(version)
	return ok && of == minor
}

func isVersionStep(set *v1beta1.MachineSet) bool {
	_, is := set.Annotations[v1beta1.AnnotationVersionStep]
	return is
}

// withVersion returns a copy of the deployment with the version and the class of a step.
func withVersion(d *v1beta1.MachineDeployment, step v1beta1.VersionStep) *v1beta1.MachineDeployment {
	d = d.DeepCopy()
	d.Spec.Template.Spec.Version = step.Version
	if step.ClassName != "" && d.Spec.Template.Spec.ClassRef != nil {
		d.Spec.Template.Spec.ClassRef.Name = step.ClassName
	}
	return d
}

// withVersionOf returns a copy of the deployment with the version and the class of a set.
func withVersionOf(d *v1beta1.MachineDeployment, set *v1beta1.MachineSet) *v1beta1.MachineDeployment {
	step := v1beta1.VersionStep{Version: set.Spec.Template.Spec.Version}
	if set.Spec.Template.Spec.ClassRef != nil {
		step.ClassName = set.Spec.Template.Spec.ClassRef.Name
	}
	return withVersion(d, step)
}

// recordStep records in the set of the newest revision whether the revision is a step before the last one.
func (v *view) recordStep(set *v1beta1.MachineSet) {
	if v.step.isLast {
		delete(set.Annotations, v1beta1.AnnotationVersionStep)
	} else {
		annotate(set, v1beta1.AnnotationVersionStep, "")
	}
}

// waitsForDeletions explains what a step waits for after all its machines are available, or returns "".
func (v *view) waitsForDeletions() string {
	var n int32
	for i, set := range v.state.Sets {
		if i != v.state.CurrentIndex {
			n += set.Deleting
		}
	}
	if v.step.isLast || n == 0 {
		return ""
	}
	return fmt.Sprintf("%s of old revisions must be gone before the next step", wording.Count(n, "machine"))
}

// stepsBelow returns the steps that may precede the version of the spec.
func stepsBelow(steps []v1beta1.VersionStep, spec v1beta1.MachineSpec) []v1beta1.VersionStep {
	target, ok := versionskew.MinorOf(spec.Version)
	return slices.DeleteFunc(slices.Clone(steps), func(s v1beta1.VersionStep) bool {
		minor, known := versionskew.MinorOf(s.Version)
		return !ok || !known || minor.Compare(target) >= 0 || s.ClassName != "" && spec.ClassRef == nil
	})
}
