package preview

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
)

// addInputNotes adds a note if existing machines were created with other user data or another account. Such a
// difference comes from a changed Secret, so a comparison of the deployments does not show it.
func (p *Plan) addInputNotes(f Fleet) {
	count := func(class, now string, with func(*v1beta1.InstanceStatus) string) (differing int) {
		for _, m := range f.Machines {
			if f.NewDeployment.Spec.Placement != nil && (m.Spec.ClassRef == nil || m.Spec.ClassRef.Name != class) {
				continue
			}
			if in := m.Status.Instance; now != "" && machinestate.IsLive(m) && in != nil && with(in) != "" && with(in) != now {
				differing++
			}
		}
		return differing
	}
	rolls := slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Effect == EffectRolls })
	for _, name := range ClassNames(f.NewDeployment) {
		class := f.Classes[name]
		n := count(name, class.UserDataHash, func(in *v1beta1.InstanceStatus) string { return in.UserDataHash })
		if n > 0 && !rolls {
			p.Notes = append(p.Notes, fmt.Sprintf("Machines that were created from other user data than class %s has now: %d of %d. "+
				"To replace these machines, run: machinist rollout restart md/%s -n %s", name, n, len(f.Machines), p.Name, p.Namespace))
		}
		n = count(name, class.Account, func(in *v1beta1.InstanceStatus) string { return in.Account })
		if n > 0 {
			p.Notes = append(p.Notes, fmt.Sprintf("Machines in another account than %q, to which the credentials of class %s belong "+
				"now: %d of %d. These machines cannot be deleted until the Secret has the previous credentials again.",
				class.Account, name, n, len(f.Machines)))
		}
	}
}
