package machinedeployment

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
)

// draft is a plan under construction. Its sets have the replicas that the plan gives them so far. All changes use
// grow and shrink, which keep the bounds.
type draft struct {
	State
	before []int32    // replicas as the sets have them now
	roles  []Role     // as the sets have them now
	why    [][]string // reasons, by set
	// forPeople says that the rollout waits only for people to select machines.
	forPeople bool
}

func newDraft(s State) *draft {
	d := &draft{State: s, before: make([]int32, len(s.Sets)), roles: make([]Role, len(s.Sets)),
		why: make([][]string, len(s.Sets))}
	d.Sets = slices.Clone(s.Sets)
	for i := range d.Sets {
		if d.Sets[i].Leaving {
			d.Sets[i].Replicas = 0
		}
		d.before[i] = d.Sets[i].Replicas
		// A set has a role in a hand-over only if the plan gives it one.
		d.roles[i], d.Sets[i].Role = d.Sets[i].Role, Role{}
		if s.Strategy == v1beta1.StrategyInPlace {
			d.Sets[i].Available -= d.Sets[i].Updating
		}
		d.Sets[i].pendingBefore = pendingDeletions(d.Sets[i])
	}
	return d
}

// ceiling is the greatest number of machines that the set can have without another write: its controller may not have
// acted yet, or may still act upon earlier replicas.
func ceiling(s Set) int32 {
	if s.Leaving {
		return s.Live
	}
	return max(s.Replicas, s.Live, s.Most)
}

// pendingDeletions is the number of live machines that the set must delete, or may still delete because of earlier
// replicas.
func pendingDeletions(s Set) int32 { return max(0, s.Live-min(s.Replicas, s.Least)) }

// guaranteedAvailable is the number of machines that remain available after the set's pending deletions.
func guaranteedAvailable(s Set) int32 {
	if s.Leaving {
		return 0
	}
	return max(0, s.Available-s.pendingBefore-max(0, pendingDeletions(s)-s.pendingBefore-s.First))
}

// harmless is the lowest number of replicas that costs the set no available machine, by the present state. If a machine
// becomes available before the set chooses, the set itself waits.
func harmless(s Set) int32 {
	if s.Available == 0 {
		return 0
	}
	return min(s.Replicas, max(0, s.Live-s.Free))
}

func (d *draft) sum(of func(Set) int32) int32 {
	var n int32
	for _, set := range d.Sets {
		n += of(set)
	}
	return n
}

// capacity is how many machines may be added over all sets; negative if there are too many.
func (d *draft) capacity() int32 { return d.Replicas + d.MaxSurge - d.sum(ceiling) }

// minAvailable is how many machines must stay available.
func (d *draft) minAvailable() int32 { return d.MinAvailable(d.Replicas) }

// blockedDeletions is how many surplus machines the sets do not delete yet because too few machines would stay
// available. That happens when a machine becomes available after the deployment lowered the set's replicas.
func (d *draft) blockedDeletions(which func(i int) bool) int32 {
	var among, all, available int32
	for i, set := range d.Sets {
		if set.Leaving {
			continue
		}
		n := min(set.Available, max(0, set.Live-set.Replicas-set.Free))
		available += set.Available
		all += n
		if which(i) {
			among += n
		}
	}
	return min(among, max(0, all-max(0, available-d.minAvailable())))
}

// grow raises the replicas of set i towards to, as far as maxSurge and a freeze allow, and returns by how much.
func (d *draft) grow(i int, to int32, why string) int32 {
	set := &d.Sets[i]
	if set.Leaving || d.Frozen {
		return 0
	}
	n := min(to, ceiling(*set)+d.capacity()) - set.Replicas
	if n <= 0 {
		return 0
	}
	set.Replicas += n
	d.addReason(i, why)
	return n
}

// shrink lowers the replicas of set i towards to, as far as maxUnavailable allows, and returns by how much.
func (d *draft) shrink(i int, to int32, why string) int32 {
	set := &d.Sets[i]
	if set.Leaving {
		return 0
	}
	lowest := harmless(*set)
	switch spare := d.sum(guaranteedAvailable) - d.minAvailable(); {
	case spare >= guaranteedAvailable(*set):
		lowest = 0
	case spare > 0:
		lowest -= spare
	}
	n := set.Replicas - max(to, lowest)
	if n <= 0 {
		return 0
	}
	// Until the set's controller observes the change, it may still create machines up to the higher number. (grow leaves
	// Least as it is for the same reason.)
	set.Most = max(set.Most, set.Replicas)
	set.Replicas -= n
	d.addReason(i, why)
	return n
}

func (d *draft) addReason(i int, why string) {
	if !slices.Contains(d.why[i], why) {
		d.why[i] = append(d.why[i], why)
	}
}

// grew reports whether the plan gives any set more replicas.
func (d *draft) grew() bool {
	for i, set := range d.Sets {
		if set.Replicas > d.before[i] {
			return true
		}
	}
	return false
}

// scales returns the changes: first the sets that shrink, the oldest first, then those that grow.
func (d *draft) scales() []Scale {
	var down, up []Scale
	for i, set := range d.Sets {
		scale := Scale{Set: i, From: d.before[i], To: set.Replicas, Why: strings.Join(d.why[i], ", ")}
		switch {
		case scale.To < scale.From:
			down = append(down, scale)
		case scale.To > scale.From:
			up = append(up, scale)
		}
	}
	return append(down, up...)
}

// rolesNow returns each set's role in a hand-over from now on.
func (d *draft) rolesNow() []Role {
	roles := make([]Role, len(d.Sets))
	for i, set := range d.Sets {
		roles[i] = set.Role
	}
	return roles
}

func (s Scale) String() string { return fmt.Sprintf("%d→%d (%s)", s.From, s.To, s.Why) }
