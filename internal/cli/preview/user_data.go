package preview

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/internal/machinestate"
	"machinist.dev/machinist/internal/wording"
)

// otherUserData notes how many machines were created from other user data than their class has now, unless the change
// replaces all machines anyway. No change of the deployment shows that, since only the Secret has changed.
func (p *Plan) otherUserData(f Fleet) {
	if slices.ContainsFunc(p.Changes, func(c Change) bool { return c.Effect == EffectRolls }) || f.UserDataHash == "" {
		return
	}
	differing := 0
	for _, m := range f.Machines {
		if in := m.Status.Instance; machinestate.Live(m) && in != nil && in.UserDataHash != "" &&
			in.UserDataHash != f.UserDataHash {
			differing++
		}
	}
	if differing > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s of %d had other user data than class %s has now. To replace these machines, "+
			"run: machinist rollout restart md/%s -n %s", wording.Count(differing, "machine"), len(f.Machines),
			f.After.Spec.Template.Spec.ClassRef.Name, p.Name, p.Namespace))
	}
}
