package machineset

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"

	"machinist.dev/machinist/api/v1beta1"
)

// DeletionOrder returns the machines in the order in which a set of that policy and generation deletes them when it is
// scaled down: what somebody marked, what is to be replaced anyway, what has no instance yet, what is in trouble, what
// has a lower delete-priority, what is not Ready, and then as the policy says.
func DeletionOrder(machines []*v1beta1.Machine, policy v1beta1.DeletePolicy, generation int64) []*v1beta1.Machine {
	ranks := make([]rank, 0, len(machines))
	for _, m := range machines {
		ranks = append(ranks, rankOf(m, policy, generation))
	}
	slices.SortFunc(ranks, compareRanks)
	ordered := make([]*v1beta1.Machine, 0, len(ranks))
	for _, r := range ranks {
		ordered = append(ordered, r.machine)
	}
	return ordered
}

// rank is what the place of a machine in the order depends on, most important first. Of two machines the lower goes
// first.
type rank struct {
	unmarked   bool
	healthy    bool // neither Failed nor to be remediated
	launched   bool
	untroubled bool // not Unhealthy
	priority   int
	ready      bool
	age        int64             // by policy Newest and Oldest
	shuffle    [sha256.Size]byte // by policy Random
	machine    *v1beta1.Machine
}

func rankOf(m *v1beta1.Machine, policy v1beta1.DeletePolicy, generation int64) rank {
	r := rank{
		unmarked:   !has(m.Annotations, v1beta1.AnnotationDeleteMachine),
		healthy:    !toBeReplaced(m),
		launched:   m.Spec.ProviderID != "",
		untroubled: m.Status.Phase != v1beta1.MachineUnhealthy,
		priority:   deletePriority(m),
		ready:      ready(m),
		machine:    m,
	}
	switch policy {
	case v1beta1.DeleteNewest:
		r.age = -m.CreationTimestamp.Unix()
	case v1beta1.DeleteOldest:
		r.age = m.CreationTimestamp.Unix()
	default:
		// The generation makes each change of the set draw anew, and the same decision come out the same when it is
		// made twice.
		r.shuffle = sha256.Sum256(fmt.Appendf(nil, "%s/%d", m.UID, generation))
	}
	return r
}

func compareRanks(a, b rank) int {
	return cmp.Or(
		falseFirst(a.unmarked, b.unmarked),
		falseFirst(a.healthy, b.healthy),
		falseFirst(a.launched, b.launched),
		falseFirst(a.untroubled, b.untroubled),
		cmp.Compare(a.priority, b.priority),
		falseFirst(a.ready, b.ready),
		cmp.Compare(a.age, b.age),
		bytes.Compare(a.shuffle[:], b.shuffle[:]),
		cmp.Compare(a.machine.Name, b.machine.Name),
	)
}

func falseFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// deletePriority is the default where the annotation is missing or no 32-bit integer.
func deletePriority(m *v1beta1.Machine) int {
	value, set := m.Annotations[v1beta1.AnnotationDeletePriority]
	if !set {
		return v1beta1.DefaultDeletePriority // Without the cost of an error for each machine.
	}
	priority, err := strconv.ParseInt(value, 10, 32)
	if err != nil {
		return v1beta1.DefaultDeletePriority
	}
	return int(priority)
}
