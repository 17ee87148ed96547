package machinedeployment

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
)

// PassPreview describes what a pass over a deployment would do.
type PassPreview struct {
	// Sets contains the sets as they would be after the pass, the oldest first. If the pass would create a set, this
	// set is the last element and has no UID.
	Sets []*v1beta1.MachineSet
	// CurrentIndex is the index in Sets of the set that has the wanted template, or -1 if there is none.
	CurrentIndex int
	// OutdatedMachines is how many machines of old revisions exist or may still be created.
	OutdatedMachines int32
	// Bounds limit how far the number of machines may differ from replicas during the rollout.
	Bounds
	// Actions describes which sets the pass would scale and why. WaitMessage is the reason why the rollout does not
	// advance, as a clause without a capital letter and full stop. Each text may be empty.
	Actions, WaitMessage string
	// StopReason is PartitionReached or WaitingForPromotion if partition or pauseAfter stops the rollout, or empty.
	StopReason string
	// Revision is the number of the wanted revision.
	Revision int64
	// Step is the step of the rollout (spec.versionSteps), or nil.
	Step *v1beta1.VersionStepStatus
	// Failing is true if machines of the newest revision fail to launch.
	Failing bool
	// StartsIn is the time until spec.rolloutAfter, or 0.
	StartsIn time.Duration
}

// Preview returns what a pass would do, without changing sets or machines. The error explains why the controller would
// ignore the deployment.
func Preview(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, machines map[types.UID][]*v1beta1.Machine,
	now time.Time) (PassPreview, error) {
	switch selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector); {
	case err != nil:
		return PassPreview{}, fmt.Errorf("spec.selector: %w", err)
	case selector.Empty():
		return PassPreview{}, fmt.Errorf("spec.selector is empty: it would match every MachineSet")
	}
	if message := tooManyLabels(d); message != "" {
		return PassPreview{}, fmt.Errorf("%s", message)
	}
	limits, err := bounds.ForDeployment(d)
	if err != nil {
		return PassPreview{}, err
	}
	r := New(Options{})
	p := &pass{Reconciler: r, deployment: d, known: r.shared.get(types.NamespacedName{}, d.UID), now: now}
	v := p.observe(context.Background(), sets, machines, limits)
	v.plan = MakePlan(v.state)
	v.plan.WaitMessage = v.waitingFor(d.Name, v.plan.WaitMessage)
	if v.cannotCreateReason != "" {
		v.plan.WaitMessage = v.cannotCreateReason
	}
	change := make(map[int]int32, len(v.plan.Scales))
	for _, scale := range v.plan.Scales {
		change[scale.Set] = scale.To - scale.From
	}
	after := make([]*v1beta1.MachineSet, 0, len(v.sets)+1)
	for i, set := range v.sets {
		if v.state.Sets[i].BeingDeleted {
			after = append(after, set)
			continue
		}
		after = append(after, v.wantedSet(d, i, change[i]))
	}
	if set := v.setToCreate; set != nil {
		replicas := change[len(v.sets)]
		set.Spec.Replicas = &replicas
		v.plan.Roles[v.state.CurrentIndex].annotate(set)
		annotate(set, v1beta1.AnnotationSizedFor, strconv.Itoa(int(v.plan.SizedFor)))
		after = append(after, set)
	}
	return PassPreview{Sets: after, CurrentIndex: v.state.CurrentIndex, OutdatedMachines: v.outdatedMachines(),
		Bounds: limits, Actions: v.doing(),
		WaitMessage: v.plan.WaitMessage, StopReason: v.plan.StopReason, Revision: v.number,
		Step: v.step.status, Failing: v.state.Failing, StartsIn: v.startsIn}, nil
}

// Revisions returns the deployment's sets, oldest first, and the index of the set with the wanted template, or -1.
func Revisions(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, now time.Time) (ordered []*v1beta1.MachineSet,
	current int) {
	h := findRevision(d, sets, now)
	if step := d.Status.VersionStep; step != nil && step.Version != d.Spec.Template.Spec.Version {
		// The rollout is in a step before the version of the template.
		h.currentIndex = slices.IndexFunc(h.sets, func(set *v1beta1.MachineSet) bool {
			return revisionOf(set) == d.Status.CurrentRevision && set.Spec.Template.Spec.Version == step.Version
		})
	}
	return h.sets, h.currentIndex
}

// Revision returns the number of a set's revision, or 0 if it has none.
func Revision(set *v1beta1.MachineSet) int64 { return revisionOf(set) }

// RollBack changes the deployment back to the revision of a set. RollBack restores spec.rolloutAfter, spec.placement
// and the template fields whose change causes a rollout. The other fields keep their values: changes of these fields
// are propagated to all sets, so no set contains the earlier values. RollBack removes the steps in spec.versionSteps
// that the API server would refuse with the restored version.
func RollBack(d *v1beta1.MachineDeployment, to *v1beta1.MachineSet, now time.Time) {
	keepRolloutFields(&d.Spec.Template.Spec, &to.Spec.Template.DeepCopy().Spec)
	d.Spec.Placement = to.Spec.Placement.DeepCopy()
	d.Spec.VersionSteps = stepsBelow(d.Spec.VersionSteps, d.Spec.Template.Spec)
	if after := d.Spec.RolloutAfter; after != nil && !after.After(now) && !newerThan(to, after.Time) {
		d.Spec.RolloutAfter = nil
		if recorded, err := time.Parse(time.RFC3339, to.Annotations[v1beta1.AnnotationRolloutAfter]); err == nil {
			t := metav1.NewTime(recorded)
			d.Spec.RolloutAfter = &t
		}
	}
}

// RestartAt returns a value for spec.rolloutAfter with which the deployment replaces all existing machines. The value
// is the current time or up to a few seconds later. API times have a precision of one second, so the value must be
// later than the second in which the last set was created.
func RestartAt(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, now time.Time) time.Time {
	at := now.Truncate(time.Second)
	later := func(t time.Time) {
		if !t.Before(at) {
			at = t.Truncate(time.Second).Add(time.Second)
		}
	}
	for _, set := range sets {
		later(set.CreationTimestamp.Time)
		if recorded, err := time.Parse(time.RFC3339, set.Annotations[v1beta1.AnnotationRolloutAfter]); err == nil {
			later(recorded)
		}
	}
	if after := d.Spec.RolloutAfter; after != nil && !after.After(now) {
		later(after.Time)
	}
	// The time must be later than the end of the last rollout, to tell the ends of both rollouts apart.
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionRollingOut); c != nil &&
		c.LastTransitionTime.Sub(now) < time.Minute {
		later(c.LastTransitionTime.Time)
	}
	return at
}
