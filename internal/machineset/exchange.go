package machineset

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/disruption"
	"machinist.dev/machinist/internal/machinestate"
)

// expiresAt returns when a machine of the template is too old, zero if never. Machines that were made together expire
// apart: each in the last tenth of its time, by its UID.
func expiresAt(m *v1beta1.Machine, t *v1beta1.MachineSpec) time.Time {
	if t.ExpireAfter == nil || t.ExpireAfter.Duration <= 0 {
		return time.Time{}
	}
	const parts = 1000
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(m.UID)) // It never fails.
	early := t.ExpireAfter.Duration / 10 * time.Duration(hash.Sum32()%parts) / parts
	return m.CreationTimestamp.Add(t.ExpireAfter.Duration - early)
}

// expire plans to mark machines that are too old, the oldest first, to be exchanged for others: as many at a time as
// may be exchanged at a time.
func (p *Plan) expire(s State, active []*v1beta1.Machine) {
	if s.Set.Spec.Template.Spec.ExpireAfter == nil {
		return
	}
	limit := s.Exchanges
	var expired []*v1beta1.Machine
	for _, m := range active {
		at := expiresAt(m, &s.Set.Spec.Template.Spec)
		switch {
		case machinestate.Exchanged(m):
			limit--
		case at.IsZero() || machinestate.Unchangeable(m) || machinestate.MarkedForDeletion(m):
		case s.Now.Before(at):
			p.waitFor(at.Sub(s.Now))
		default:
			expired = append(expired, m)
		}
	}
	if limit <= 0 || len(expired) == 0 {
		return
	}
	slices.SortFunc(expired, func(a, b *v1beta1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	may, denied := p.ask(s, expired, func(*v1beta1.Machine) v1beta1.DisruptionReason { return v1beta1.DisruptionExpiry })
	may = may[:min(len(may), limit)]
	p.deny(denied[:min(len(denied), limit-len(may))])
	p.expiring = make(map[types.UID]bool, len(may))
	for _, m := range may {
		p.expiring[m.UID] = true
	}
}

// markExpired returns the machine with or without the mark of one that is too old; to is as it is to become otherwise,
// nil if it stays as it is.
func (p *Plan) markExpired(s State, m, to *v1beta1.Machine) *v1beta1.Machine {
	at := expiresAt(m, &s.Set.Spec.Template.Spec)
	stale := m.Annotations[v1beta1.AnnotationReplace] == disruption.Expired && (at.IsZero() || s.Now.Before(at))
	if !p.expiring[m.UID] && !stale {
		return to
	}
	if to == nil {
		to = m.DeepCopy()
	}
	if stale {
		delete(to.Annotations, v1beta1.AnnotationReplace)
		return to
	}
	if to.Annotations == nil {
		to.Annotations = map[string]string{}
	}
	to.Annotations[v1beta1.AnnotationReplace] = disruption.Expired
	return to
}

// exchange plans to exchange a machine of a set without a deployment, which has one machine more meanwhile: another one
// is made, and the machine goes when that is available. It reports whether an exchange is under way; then the one
// machine too many is no surplus. (A deployment raises and lowers the replicas of its set for that.)
func (p *Plan) exchange(s State, active []*v1beta1.Machine, surplus int) bool {
	if !s.Alone || surplus < 0 || surplus > 1 || s.frozen().Reason != "" {
		return false
	}
	var marked []*v1beta1.Machine
	available := 0
	for _, m := range active {
		if machinestate.Exchanged(m) && !machinestate.Unchangeable(m) {
			marked = append(marked, m)
		}
		if machinestate.Available(m, s.Set.Spec.MinReadySeconds, s.Now) {
			available++
		}
	}
	if len(marked) == 0 {
		return false
	}
	slices.SortFunc(marked, func(a, b *v1beta1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	may, denied := p.ask(s, marked, disruption.ReasonOfExchange)
	switch {
	case len(may) == 0:
		p.deny(denied[:1])
	case surplus == 0:
		p.create(s, 1)
	case available > int(s.Set.ReplicasOrDefault()):
		p.Delete, p.Chosen = may[:1], true
	}
	return surplus == 1 || p.Create > 0
}
