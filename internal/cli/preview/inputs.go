package preview

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// otherInputs notes how many machines were made from other user data or in another account than their class has now. No
// change of the deployment shows that, since only the content of a Secret has changed.
func (p *Plan) otherInputs(f Fleet) {
	count := func(now string, with func(*v1beta1.InstanceStatus) string) (differing int) {
		for _, m := range f.Machines {
			if in := m.Status.Instance; now != "" && machinestate.Live(m) && in != nil && with(in) != "" && with(in) != now {
				differing++
			}
		}
		return differing
	}
	rolls := slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Effect == EffectRolls })
	if n := count(f.UserDataHash, func(in *v1beta1.InstanceStatus) string { return in.UserDataHash }); n > 0 && !rolls {
		p.Notes = append(p.Notes, fmt.Sprintf("%s of %d had other user data than class %s has now. To replace these machines, "+
			"run: machinist rollout restart md/%s -n %s", wording.Count(n, "machine"), len(f.Machines),
			f.After.Spec.Template.Spec.ClassRef.Name, p.Name, p.Namespace))
	}
	if n := count(f.Account, func(in *v1beta1.InstanceStatus) string { return in.Account }); n > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s of %d had another account than %q, which the credentials of class %s name "+
			"now. These machines cannot be deleted until the former credentials are put back.", wording.Count(n, "machine"),
			len(f.Machines), f.Account, f.After.Spec.Template.Spec.ClassRef.Name))
	}
}
