package placement

// DeletionOrder returns the machines in the order in which a set deletes them. The given machines are in the
// deletion order without placement, and sameTier reports whether the placement may change the order of two
// neighbours. Among machines of the same tier, the machine whose domain has the largest surplus is first. Each
// machine lowers the surplus of its domain for the following machines. If surpluses are equal, the given order
// decides.
//
// The Planner counts only machines in State.Machines. For a machine that is not among these, for example because it
// is marked for deletion, placeOf returns the zero Choice. Such a machine is first in its tier, and its deletion
// changes no surplus.
//
// DeletionOrder does not change the planner.
func DeletionOrder[M any](p *Planner, machines []M, placeOf func(M) Choice, sameTier func(a, b M) bool) []M {
	places := make([]*domain, len(machines))
	for i, m := range machines {
		if c := placeOf(m); c != (Choice{}) {
			places[i] = p.domain(c.Domain)
		}
	}
	deleted := make(map[*domain]int64, len(p.byName))
	ordered := make([]M, 0, len(machines))
	for start, end := 0, 0; start < len(machines); start = end {
		for end = start + 1; end < len(machines) && sameTier(machines[end-1], machines[end]); end++ {
		}
		for _, i := range p.orderTier(places[start:end], deleted) {
			ordered = append(ordered, machines[start+i])
		}
	}
	return ordered
}

// queue contains the machines of a tier in one domain, as indexes in the tier.
type queue struct {
	domain *domain
	next   []int
}

// orderTier returns the deletion order of a tier's machines, whose domains are given, as indexes. It adds the
// machines to deleted.
func (p *Planner) orderTier(domains []*domain, deleted map[*domain]int64) []int {
	order := make([]int, 0, len(domains))
	var queues []*queue
	queueOf := map[*domain]*queue{}
	for i, d := range domains {
		if d == nil {
			order = append(order, i)
			continue
		}
		q := queueOf[d]
		if q == nil {
			q = &queue{domain: d}
			queueOf[d] = q
			queues = append(queues, q)
		}
		q.next = append(q.next, i)
	}
	for len(order) < len(domains) {
		var first *queue
		var most int64
		for _, q := range queues {
			if len(q.next) == 0 {
				continue
			}
			surplus := p.surplus(q.domain) - deleted[q.domain]*p.unit
			if first == nil || surplus > most || surplus == most && q.next[0] < first.next[0] {
				first, most = q, surplus
			}
		}
		order = append(order, first.next[0])
		first.next = first.next[1:]
		deleted[first.domain]++
	}
	return order
}
