package machinedeployment

import (
	"fmt"
	"slices"
	"strings"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// draft is an unfinished plan. Change replicas only with its methods grow and shrink, because they respect maxSurge and
// maxUnavailable.
type draft struct {
	State
	before          []int32    // present replicas, by set
	roles           []Role     // present roles, by set
	why             [][]string // reasons of changes, by set
	awaitsSelection bool
	atRest          bool // see Plan.StoppedAtRest
}

func newDraft(s State) *draft {
	d := &draft{State: s, before: make([]int32, len(s.Sets)), roles: make([]Role, len(s.Sets)),
		why: make([][]string, len(s.Sets))}
	d.Sets = slices.Clone(s.Sets)
	for i := range d.Sets {
		if d.Sets[i].BeingDeleted {
			d.Sets[i].Replicas = 0
		}
		d.before[i] = d.Sets[i].Replicas
		d.roles[i], d.Sets[i].Role = d.Sets[i].Role, Role{}
		if s.Strategy == v1beta1.StrategyInPlace {
			d.Sets[i].Available -= d.Sets[i].Updating
		}
		d.Sets[i].pendingBefore = pendingDeletions(d.Sets[i])
	}
	return d
}

// ceiling returns the maximum number of machines that the set can have before the deployment's next write. If replicas
// were lowered, the set's controller may not have observed this yet, and may still create machines.
func ceiling(s Set) int32 {
	if s.BeingDeleted {
		return s.Live
	}
	return max(s.Replicas, s.Live, s.MaxReplicas)
}

// pendingDeletions returns the number of live machines that the set's controller may still delete. The controller may
// not have observed the latest replicas yet, so the lowest earlier replicas count too.
func pendingDeletions(s Set) int32 { return max(0, s.Live-min(s.Replicas, s.MinReplicas)) }

// guaranteedAvailable returns how many machines of the set stay available in the worst case: the set deletes as many
// available machines as its pending deletions permit.
func guaranteedAvailable(s Set) int32 {
	if s.BeingDeleted {
		return 0
	}
	return max(0, s.Available-s.pendingBefore-max(0, pendingDeletions(s)-s.pendingBefore-s.UnavailableFirst))
}

// harmlessReplicas returns the lowest replicas at which the set deletes no available machine.
func harmlessReplicas(s Set) int32 {
	if s.Available == 0 {
		return 0
	}
	return min(s.Replicas, max(0, s.Live-s.Expendable))
}

func (d *draft) sum(of func(Set) int32) int32 {
	var n int32
	for _, set := range d.Sets {
		n += of(set)
	}
	return n
}

// capacity returns how many machines may be added in all sets together. If there are too many machines already, the
// number is negative.
func (d *draft) capacity() int32 { return d.Replicas + d.MaxSurge - d.sum(ceiling) }

func (d *draft) minAvailable() int32 { return d.MinAvailable(d.Replicas) }

func (d *draft) mustStayAvailable() string {
	return fmt.Sprintf("at least %d must stay available (replicas %d − maxUnavailable %d)", d.minAvailable(), d.Replicas,
		d.MaxUnavailable)
}

func machinesAre(n int32) string {
	if n == 1 {
		return "1 machine is"
	}
	return wording.Count(n, "machine") + " are"
}

func (d *draft) blockedDeletions(included func(i int) bool) int32 {
	var among, all, available int32
	for i, set := range d.Sets {
		if set.BeingDeleted {
			continue
		}
		n := min(set.Available, max(0, set.Live-set.Replicas-set.Expendable))
		available += set.Available
		all += n
		if included(i) {
			among += n
		}
	}
	return min(among, max(0, all-max(0, available-d.minAvailable())))
}

// grow raises the replicas of set i towards the given number, within maxSurge and unless creation is frozen. It returns
// the change.
func (d *draft) grow(i int, to int32, why string) int32 {
	set := &d.Sets[i]
	if set.BeingDeleted || d.Frozen {
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

// shrink lowers the replicas of set i towards the given number, within maxUnavailable. It returns the change.
func (d *draft) shrink(i int, to int32, why string) int32 {
	set := &d.Sets[i]
	if set.BeingDeleted {
		return 0
	}
	lowest := harmlessReplicas(*set)
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
	// Until the set's controller observes the change, it may still create machines up to the old replicas.
	set.MaxReplicas = max(set.MaxReplicas, set.Replicas)
	set.Replicas -= n
	d.addReason(i, why)
	return n
}

func (d *draft) addReason(i int, why string) {
	if !slices.Contains(d.why[i], why) {
		d.why[i] = append(d.why[i], why)
	}
}

func (d *draft) grew() bool {
	for i, set := range d.Sets {
		if set.Replicas > d.before[i] {
			return true
		}
	}
	return false
}

// scales returns the changes of replicas: first the sets that shrink, oldest first, then the sets that grow.
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

func (d *draft) rolesNow() []Role {
	roles := make([]Role, len(d.Sets))
	for i, set := range d.Sets {
		roles[i] = set.Role
	}
	return roles
}

func (s Scale) String() string { return fmt.Sprintf("%d→%d (%s)", s.From, s.To, s.Why) }
