package machinedeployment

import (
	"cmp"
	"fmt"
	"slices"
)

// remain is how many machines of a set with a role in a hand-over stay available: it deletes none, and hands over
// unavailable ones first.
func (s *simulatedSet) remain() int32 {
	var up int32
	for _, m := range s.machines {
		if m.state == available && !m.deleting && !slices.Contains(s.victims, m) {
			up++
		}
	}
	if s.MoveTo == "" || s.Moves == 0 {
		return up
	}
	for i, m := range s.giving() {
		if s.BySelection && m.state == available && int32(i) < s.live()-s.replicas {
			up-- // It may be handed over.
		}
	}
	if s.BySelection {
		return up
	}
	return min(up, s.replicas)
}

// stay is how many machines no set has to delete.
func (w *world) stay() (n int32) {
	for _, s := range w.sets {
		if s.MoveTo != "" || s.ReceiveFrom != "" {
			n += s.live()
		} else {
			n += min(s.live(), s.replicas)
		}
	}
	return n
}

// giving returns the machines that may be handed over in the order in which they are.
func (s *simulatedSet) giving() []*simulatedMachine {
	order := slices.DeleteFunc(s.order(), func(m *simulatedMachine) bool { return s.BySelection && !m.selected })
	rank := func(m *simulatedMachine) int {
		if m.state == available {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(order, func(a, b *simulatedMachine) int { return cmp.Compare(rank(a), rank(b)) })
	return order
}

// order returns the live machines in the order of deletion, available ones first where it leaves that open.
func (s *simulatedSet) order() []*simulatedMachine {
	rank := func(m *simulatedMachine) int {
		switch {
		case m.marked && m.state == available:
			return 0
		case m.marked:
			return 1
		}
		return map[machineState]int{failed: 2, comingUp: 3, sick: 4, disturbed: 4, available: 5, asked: 5,
			unwilling: 5}[m.state]
	}
	var order []*simulatedMachine
	for _, m := range s.machines {
		if !m.deleting {
			order = append(order, m)
		}
	}
	slices.SortStableFunc(order, func(a, b *simulatedMachine) int { return cmp.Compare(rank(a), rank(b)) })
	return order
}

// decide lets the set's controller plan, unless it still carries out an earlier plan.
func (w *world) decide(s *simulatedSet) {
	if s.creates > 0 || len(s.victims) > 0 || len(s.gives) > 0 {
		return
	}
	s.decidedOn = s.generation
	switch live := s.live(); {
	case s.MoveTo != "":
		giving := s.giving()
		s.givesTo = s.MoveTo
		s.gives = giving[:max(0, min(s.Moves, live-s.replicas, int32(len(giving))))]
	case live > s.replicas && s.ReceiveFrom != "":
	case live < s.replicas && !s.noCreate && !w.frozen && !w.expects(s):
		s.creates = s.replicas - live
	case live > s.replicas:
		s.victims = s.order()[:live-s.replicas]
	}
}

// act lets the set's controller create or delete one machine; it returns false if there was nothing left to do.
func (w *world) act(s *simulatedSet) bool {
	w.t.Helper()
	defer w.crashes()
	switch {
	case len(s.gives) > 0:
		w.give(s)
	case s.creates > 0:
		s.creates--
		w.machines++
		s.machines = append(s.machines, &simulatedMachine{name: fmt.Sprintf("%s%d", s.name, w.machines), state: comingUp,
			since: w.clock})
		var all int32
		for _, other := range w.sets {
			all += other.live()
		}
		if all > w.allowed {
			w.t.Fatalf("set %s made machine %d of at most %d\n%s", s.name, all, w.allowed, w.log)
		}
	case len(s.victims) > 0:
		victim := s.victims[0]
		s.victims = s.victims[1:]
		if victim.state == available && !victim.deleting && w.up() <= w.replicas-w.bounds().MaxUnavailable {
			// It stays for now, and a machine that is not available is deleted instead.
			victim = s.unavailable()
		}
		if victim == nil {
			s.victims = nil
			return false
		}
		victim.deleting = true
	default:
		return false
	}
	return true
}

// up is how many machines are available.
func (w *world) up() (n int32) {
	for _, s := range w.sets {
		for _, m := range s.machines {
			if m.state == available && !m.deleting {
				n++
			}
		}
	}
	return n
}

// unavailable returns a machine of the set that is not available and not a victim, nil if there is none.
func (s *simulatedSet) unavailable() *simulatedMachine {
	for _, m := range s.machines {
		if m.state != available && !m.deleting && !slices.Contains(s.victims, m) {
			return m
		}
	}
	return nil
}

// expects reports whether machines are being handed over to the set.
func (w *world) expects(s *simulatedSet) bool {
	from := w.set(s.ReceiveFrom)
	return from != nil && from.MoveTo == s.name
}

// give hands one machine over, unless it was deleted meanwhile.
func (w *world) give(s *simulatedSet) {
	w.t.Helper()
	m, to := s.gives[0], w.set(s.givesTo)
	s.gives = s.gives[1:]
	switch {
	case s.MoveTo == "" && (to == nil || to.ReceiveFrom != s.name):
		s.gives = nil // That the other is ready is confirmed before it acts.
		return
	case m.deleting || !slices.Contains(s.machines, m) || w.manual && !m.selected:
		return // Somebody wrote the machine meanwhile.
	case to == nil || to.ReceiveFrom != s.name:
		w.t.Fatalf("set %s hands machine %s over to %q, which is not ready\n%s", s.name, m.name, s.givesTo, w.log)
	}
	s.remove(m)
	m.selected = false
	to.machines = append(to.machines, m)
	switch m.state {
	case available, unwilling, disturbed:
		w.become(m, asked)
	}
}

// report lets the set's controller write its status once it has carried out its plan.
func (s *simulatedSet) report() {
	if s.creates == 0 && len(s.victims) == 0 && len(s.gives) == 0 {
		s.observed = s.decidedOn
	}
}

// become brings a machine to a state.
func (w *world) become(m *simulatedMachine, state machineState) {
	if m.state != state {
		m.state, m.since = state, w.clock
	}
}

// remove removes a machine whose deletion is complete.
func (s *simulatedSet) remove(m *simulatedMachine) {
	s.machines = slices.DeleteFunc(s.machines, func(o *simulatedMachine) bool { return o == m })
}
