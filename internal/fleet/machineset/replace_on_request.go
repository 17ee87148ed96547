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

// expiresAt returns when a machine exceeds the template's expireAfter, or the zero time if never. Depending on its UID,
// a machine expires up to a tenth of expireAfter earlier, which spreads replacements over time.
func expiresAt(m *v1beta1.Machine, t *v1beta1.MachineSpec) time.Time {
	if t.ExpireAfter == nil || t.ExpireAfter.Duration <= 0 {
		return time.Time{}
	}
	const parts = 1000
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(m.UID)) // This never fails.
	early := t.ExpireAfter.Duration / 10 * time.Duration(hash.Sum32()%parts) / parts
	return m.CreationTimestamp.Add(t.ExpireAfter.Duration - early)
}

// expire adds AnnotationReplace to machines that are too old, oldest first. At most MaxReplacing machines have the
// annotation at a time.
func (p *Plan) expire(s State, active []*v1beta1.Machine) {
	if s.Set.Spec.Template.Spec.ExpireAfter == nil || s.Set.Spec.Hibernated {
		return
	}
	limit := s.MaxReplacing
	var expired []*v1beta1.Machine
	for _, m := range active {
		at := expiresAt(m, &s.Set.Spec.Template.Spec)
		switch {
		case machinestate.HasReplaceAnnotation(m):
			limit--
		case at.IsZero() || machinestate.IsUnchangeable(m) || machinestate.MarkedForDeletion(m) || machinestate.IsStopped(m):
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

// markExpired adds the annotation to a machine that is too old, or removes an outdated one. markExpired combines this
// change with the other planned changes of the machine. If nothing changes, the result is nil.
func (p *Plan) markExpired(s State, m, desired *v1beta1.Machine) *v1beta1.Machine {
	at := expiresAt(m, &s.Set.Spec.Template.Spec)
	stale := m.Annotations[v1beta1.AnnotationReplace] == disruption.ExpiredValue && (at.IsZero() || s.Now.Before(at))
	if !p.expiring[m.UID] && !stale {
		return desired
	}
	return setReplaceMark(m, desired, disruption.ExpiredValue, stale)
}

// setReplaceMark returns the machine with the given value of AnnotationReplace, or without the annotation if the mark
// is stale. desired contains the other planned changes of the machine, or is nil.
func setReplaceMark(m, desired *v1beta1.Machine, value string, stale bool) *v1beta1.Machine {
	if desired == nil {
		desired = m.DeepCopy()
	}
	if stale {
		delete(desired.Annotations, v1beta1.AnnotationReplace)
		return desired
	}
	if desired.Annotations == nil {
		desired.Annotations = map[string]string{}
	}
	desired.Annotations[v1beta1.AnnotationReplace] = value
	return desired
}

// replacedOnRequest returns the machines that a standalone set must replace because of AnnotationReplace, sorted by
// name. A deployment replaces machines by changing the replicas of its sets.
func (s State) replacedOnRequest(machines []*v1beta1.Machine) []*v1beta1.Machine {
	if !s.Standalone {
		return nil
	}
	var replaced []*v1beta1.Machine
	for _, m := range machines {
		if machinestate.HasReplaceAnnotation(m) && !machinestate.IsUnchangeable(m) {
			replaced = append(replaced, m)
		}
	}
	slices.SortFunc(replaced, func(a, b *v1beta1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return replaced
}

// replaceOnRequest plans the replacement of a marked machine. The set first creates one additional machine. When
// enough unmarked machines are available, the set deletes a marked one. replaceOnRequest ignores broken machines,
// which the method remediate replaces.
func (p *Plan) replaceOnRequest(s State, replaced, active []*v1beta1.Machine, surplus int) {
	if p.FreezeReason = s.freezeReason(); p.FreezeReason.Reason != "" {
		p.requeueFrozen(s)
		return
	}
	may, denied := p.ask(s, replaced, disruption.ReasonOfReplacement)
	switch {
	case len(may) == 0:
		p.deny(denied[:1])
		return
	case surplus == 0:
		p.create(s, 1)
		return
	}
	spare := -int(s.Set.ReplicasOrDefault())
	available := func(m *v1beta1.Machine) bool { return machinestate.IsAvailable(m, s.Set.Spec.MinReadySeconds, s.Now) }
	for _, m := range active {
		if available(m) {
			spare++
		}
	}
	at := slices.IndexFunc(may, func(m *v1beta1.Machine) bool { return spare > 0 || spare == 0 && !available(m) })
	if at >= 0 {
		p.Delete, p.Chosen = may[at:at+1], true
		p.reasonsToDelete = map[types.UID]string{may[at].UID: string(disruption.ReasonOfReplacement(may[at]))}
	}
}
