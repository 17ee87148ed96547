package machineset

import (
	"cmp"
	"hash/fnv"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/machine/machinestate"
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

// replacedOnRequest returns the machines that a set without a deployment has to replace because of AnnotationReplace,
// sorted by name. A deployment raises and lowers the replicas of its set for that instead.
func (s State) replacedOnRequest(machines []*v1beta1.Machine) []*v1beta1.Machine {
	if !s.Alone {
		return nil
	}
	var replaced []*v1beta1.Machine
	for _, m := range machines {
		if machinestate.Exchanged(m) && !machinestate.Unchangeable(m) {
			replaced = append(replaced, m)
		}
	}
	slices.SortFunc(replaced, func(a, b *v1beta1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return replaced
}

// replaceOnRequest plans the next step of replacing a machine before it is deleted: the set creates one machine more
// than its replicas, and deletes one of the machines to be replaced as soon as as many others as wanted are available.
// Broken machines neither count for that nor wait for it: remediate deletes them.
func (p *Plan) replaceOnRequest(s State, replaced, active []*v1beta1.Machine, surplus int) {
	if p.Frozen = s.frozen(); p.Frozen.Reason != "" {
		p.requeueFrozen(s)
		return
	}
	may, denied := p.ask(s, replaced, disruption.ReasonOfExchange)
	switch {
	case len(may) == 0:
		p.deny(denied[:1])
		return
	case surplus == 0:
		p.create(s, 1)
		return
	}
	spare := -int(s.Set.ReplicasOrDefault())
	available := func(m *v1beta1.Machine) bool { return machinestate.Available(m, s.Set.Spec.MinReadySeconds, s.Now) }
	for _, m := range active {
		if available(m) {
			spare++
		}
	}
	at := slices.IndexFunc(may, func(m *v1beta1.Machine) bool { return spare > 0 || spare == 0 && !available(m) })
	if at >= 0 {
		p.Delete, p.Chosen = may[at:at+1], true
	}
}
