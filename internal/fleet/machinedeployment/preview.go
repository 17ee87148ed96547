package machinedeployment

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
)

// Previewed is what a pass over a deployment would do.
type Previewed struct {
	// Sets are the deployment's sets as the pass would leave them, the oldest revision first. One that it would make is
	// the last, and has no UID.
	Sets []*v1beta1.MachineSet
	// Current is the index in Sets of the set that is of the wanted template; -1 if there is none.
	Current int
	// Outdated is how many machines of other revisions exist or may still be created.
	Outdated int32
	// Bounds are those of the rollout.
	Bounds
	// Doing says which sets the pass would scale and why, Waiting what the rollout waits for; both may be empty.
	Doing, Waiting string
	// Failing says that the newest revision does not launch.
	Failing bool
	// StartsIn is the time until spec.rolloutAfter is past, 0 if it is or is not set.
	StartsIn time.Duration
}

// Preview returns what a pass over the deployment would do with these sets and machines, all of them its own. It
// changes none of them. The error says why the controller would do nothing about the deployment.
func Preview(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, machines map[types.UID][]*v1beta1.Machine,
	now time.Time) (Previewed, error) {
	switch selector, err := metav1.LabelSelectorAsSelector(&d.Spec.Selector); {
	case err != nil:
		return Previewed{}, fmt.Errorf("spec.selector: %w", err)
	case selector.Empty():
		return Previewed{}, fmt.Errorf("spec.selector is empty: it would match every set")
	}
	if message := tooManyLabels(d); message != "" {
		return Previewed{}, fmt.Errorf("%s", message)
	}
	limits, err := bounds.Of(d)
	if err != nil {
		return Previewed{}, err
	}
	r := New(Options{})
	p := &pass{Reconciler: r, deployment: d, known: r.shared.get(types.NamespacedName{}, d.UID), now: now}
	v := p.observe(context.Background(), sets, machines, limits)
	v.plan = MakePlan(v.state)
	if v.noSuccessorReason != "" {
		v.plan.Waiting = v.noSuccessorReason
	}
	change := make(map[int]int32, len(v.plan.Scales))
	for _, scale := range v.plan.Scales {
		change[scale.Set] = scale.To - scale.From
	}
	after := make([]*v1beta1.MachineSet, 0, len(v.sets)+1)
	for i, set := range v.sets {
		if v.state.Sets[i].Leaving {
			after = append(after, set)
			continue
		}
		after = append(after, v.wantedSet(d, i, change[i]))
	}
	if set := v.successor; set != nil {
		replicas := change[len(v.sets)]
		set.Spec.Replicas = &replicas
		v.plan.Roles[v.state.Current].annotate(set)
		annotate(set, v1beta1.AnnotationSizedFor, strconv.Itoa(int(v.plan.SizedFor)))
		after = append(after, set)
	}
	return Previewed{Sets: after, Current: v.state.Current, Outdated: v.outdated(), Bounds: limits, Doing: v.doing(),
		Waiting: v.plan.Waiting,
		Failing: v.state.Failing, StartsIn: v.startsIn}, nil
}

// Revisions returns the deployment's sets, the oldest revision first, and the index of the one that has its template;
// -1 if there is none.
func Revisions(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, now time.Time) (ordered []*v1beta1.MachineSet,
	current int) {
	h := findRevision(d, sets, now)
	return h.sets, h.current
}

// Revision returns the number of a set's revision, 0 if it has none.
func Revision(set *v1beta1.MachineSet) int64 { return revisionOf(set) }

// SameRevision reports whether a rollout from one spec to the other replaces no machines.
func SameRevision(a, b *v1beta1.MachineSpec) bool { return sameRevision(a, b) }

// RollBack takes the deployment back to the revision of a set: the fields of the template that cause a rollout. The
// other fields stay, because a set has their latest values, not those at the time of the revision. RollBack restores
// spec.rolloutAfter too, because otherwise the set's machines would be renewed.
func RollBack(d *v1beta1.MachineDeployment, to *v1beta1.MachineSet, now time.Time) {
	keepWhatRolls(&d.Spec.Template.Spec, &to.Spec.Template.DeepCopy().Spec)
	if after := d.Spec.RolloutAfter; after != nil && !after.After(now) && !madeAfter(to, after.Time) {
		d.Spec.RolloutAfter = nil
		if recorded, err := time.Parse(time.RFC3339, to.Annotations[v1beta1.AnnotationRolloutAfter]); err == nil {
			t := metav1.NewTime(recorded)
			d.Spec.RolloutAfter = &t
		}
	}
}

// RestartAt returns the earliest time from now on that, as spec.rolloutAfter, renews all existing machines: times of
// the API have whole seconds, and a set created in the same second would count as renewed already.
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
	// Also later than the end of the last rollout, to distinguish that from the end of this one.
	if c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionRollingOut); c != nil &&
		c.LastTransitionTime.Sub(now) < time.Minute {
		later(c.LastTransitionTime.Time)
	}
	return at
}
