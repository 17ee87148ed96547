package machinestate

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"

	"machinist.dev/machinist/api/v1beta1"
)

// DeletionOrder sorts the machines by the order in which a MachineSet deletes them when it is scaled down. The
// following machines are deleted first, in this order:
//
//   - machines annotated for deletion
//   - machines annotated for replacement
//   - machines that must be replaced because of their health
//   - machines without an instance
//   - unhealthy machines
//   - machines with a lower delete priority
//   - machines that are not Ready
//
// The delete policy determines the order of the other machines.
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

// rank contains all values that determine the order, the most important ones first. A machine with a lower rank is
// deleted first.
type rank struct {
	precedence Precedence
	age        int64             // for the policies Newest and Oldest
	shuffle    [sha256.Size]byte // for the policy Random
	machine    *v1beta1.Machine
}

func rankOf(m *v1beta1.Machine, policy v1beta1.DeletePolicy, generation int64) rank {
	r := rank{precedence: PrecedenceOf(m), machine: m}
	switch policy {
	case v1beta1.DeleteNewest:
		r.age = -m.CreationTimestamp.Unix()
	case v1beta1.DeleteOldest:
		r.age = m.CreationTimestamp.Unix()
	default:
		// The order is random, but depends only on the UIDs and the generation of the MachineSet. So a repeated
		// decision for the same generation has the same result, and the next generation has another order.
		r.shuffle = sha256.Sum256(fmt.Appendf(nil, "%s/%d", m.UID, generation))
	}
	return r
}

func compareRanks(a, b rank) int {
	return cmp.Or(
		a.precedence.Compare(b.precedence),
		cmp.Compare(a.age, b.age),
		bytes.Compare(a.shuffle[:], b.shuffle[:]),
		cmp.Compare(a.machine.Name, b.machine.Name),
	)
}
