package rollout

import (
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// Undo is the rollback of a deployment to an earlier revision.
type Undo struct {
	// TargetSet holds the MachineSet of the earlier revision. Revision is the number of the earlier revision.
	TargetSet *v1beta1.MachineSet
	Revision  int64
	// NewDeployment holds the changed deployment. Changes are the changed fields of its spec.
	NewDeployment *v1beta1.MachineDeployment
	Changes       []change.Change
	// SkipReason explains why there is nothing to do, or is empty.
	SkipReason string
}

// NewUndo computes a rollback to a revision. If the number is 0, NewUndo chooses the newest revision whose template
// differs from the current template.
func NewUndo(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, number int64, now time.Time) (*Undo, error) {
	if d.Spec.Paused {
		return nil,
			fmt.Errorf("cannot roll back machinedeployment %q while it is paused: resume it first with \"machinist rollout resume machinedeployment/%s\"", d.Name, d.Name)
	}
	if number < 0 {
		return nil, fmt.Errorf("--to-revision=%d is not the number of a revision", number)
	}
	to, err := target(d, sets, number, now)
	if err != nil {
		return nil, err
	}
	u := &Undo{TargetSet: to, Revision: machinedeployment.Revision(to), NewDeployment: d.DeepCopy()}
	machinedeployment.RollBack(u.NewDeployment, to, now)
	differs, err := changesOf(d, u.NewDeployment)
	if err != nil {
		return nil, err
	}
	if len(differs) == 0 {
		u.SkipReason = fmt.Sprintf("the current template already matches revision %d", u.Revision)
		u.NewDeployment = d.DeepCopy()
		return u, nil
	}
	if machinedeployment.SameRevision(machinedeployment.TemplateOf(d), machinedeployment.TemplateOfSet(to)) {
		// Resetting spec.rolloutAfter would stop a restart in progress.
		u.NewDeployment.Spec.RolloutAfter = d.Spec.RolloutAfter
	}
	u.Changes, err = change.Diff("spec", d.Spec, u.NewDeployment.Spec)
	return u, err
}

// Apply changes the given deployment in memory: it sets the template and the placement of the earlier revision. Like
// kubectl, Apply also restores the annotation kubernetes.io/change-cause.
func (u *Undo) Apply(d *v1beta1.MachineDeployment) {
	d.Spec.Template, d.Spec.RolloutAfter = *u.NewDeployment.Spec.Template.DeepCopy(), u.NewDeployment.Spec.RolloutAfter
	d.Spec.Placement = u.NewDeployment.Spec.Placement.DeepCopy()
	d.Spec.VersionSteps = slices.Clone(u.NewDeployment.Spec.VersionSteps)
	delete(d.Annotations, machinedeployment.AnnotationChangeCause)
	if cause, ok := u.TargetSet.Annotations[machinedeployment.AnnotationChangeCause]; ok {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, machinedeployment.AnnotationChangeCause, cause)
	}
}

func target(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, number int64,
	now time.Time) (*v1beta1.MachineSet, error) {
	if number > 0 {
		return find(d, sets, number)
	}
	ordered, current := machinedeployment.Revisions(d, sets, now)
	if len(ordered) == 0 {
		return nil, fmt.Errorf("machinedeployment %q: %w", d.Name, errNoHistory)
	}
	for i := len(ordered) - 1; i >= 0; i-- {
		if i != current && !machinedeployment.SameRevision(machinedeployment.TemplateOfSet(ordered[i]),
			machinedeployment.TemplateOf(d)) {
			return ordered[i], nil
		}
	}
	return nil,
		fmt.Errorf("machinedeployment %q has no revision to go back to: its history has only revisions with the current template (a restart creates a revision without changing the template)", d.Name)
}
