package rollout

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/change"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
)

// Undo is what going back to a revision means.
type Undo struct {
	// To is the revision's set, Revision its number.
	To       *v1beta1.MachineSet
	Revision int64
	// After is the deployment as it would be, with Changes to its spec.
	After   *v1beta1.MachineDeployment
	Changes []change.Change
	// Skipped says why there is nothing to do, empty if there is.
	Skipped string
}

// Back works out how to go back to a revision; 0 is the newest before the current one whose template rolls.
func Back(d *v1beta1.MachineDeployment, sets []*v1beta1.MachineSet, number int64, now time.Time) (*Undo, error) {
	if d.Spec.Paused {
		return nil,
			fmt.Errorf("you cannot roll back the paused machinedeployment %q: resume it first with \"machinist rollout resume machinedeployment/%s\" and try again", d.Name, d.Name)
	}
	if number < 0 {
		return nil, fmt.Errorf("--to-revision=%d: there is no such revision", number)
	}
	to, err := target(d, sets, number, now)
	if err != nil {
		return nil, err
	}
	u := &Undo{To: to, Revision: machinedeployment.Revision(to), After: d.DeepCopy()}
	machinedeployment.RollBack(u.After, to, now)
	differs, err := change.Between("spec.template", d.Spec.Template, u.After.Spec.Template)
	if err != nil {
		return nil, err
	}
	if len(differs) == 0 {
		u.Skipped = fmt.Sprintf("the current template already matches revision %d", u.Revision)
		u.After = d.DeepCopy()
		return u, nil
	}
	if machinedeployment.SameRevision(&d.Spec.Template.Spec, &to.Spec.Template.Spec) {
		// Nothing rolls, so a time after which machines were renewed stays: without it, what is being renewed now would not
		// be.
		u.After.Spec.RolloutAfter = d.Spec.RolloutAfter
	}
	u.Changes, err = change.Between("spec", d.Spec, u.After.Spec)
	return u, err
}

// Apply takes the deployment back. Like kubectl it takes along why the revision was made.
func (u *Undo) Apply(d *v1beta1.MachineDeployment) {
	d.Spec.Template, d.Spec.RolloutAfter = *u.After.Spec.Template.DeepCopy(), u.After.Spec.RolloutAfter
	delete(d.Annotations, machinedeployment.AnnotationChangeCause)
	if cause, ok := u.To.Annotations[machinedeployment.AnnotationChangeCause]; ok {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, machinedeployment.AnnotationChangeCause, cause)
	}
}

// target returns the set to go back to.
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
		if i != current && !machinedeployment.SameRevision(&ordered[i].Spec.Template.Spec, &d.Spec.Template.Spec) {
			return ordered[i], nil
		}
	}
	return nil,
		fmt.Errorf("machinedeployment %q: no revision to go back to: %d in its history, all of the present template (a restart makes a revision and changes no template)", d.Name, len(ordered))
}
