package machinedeployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// remainsAvailable returns how many machines stay available in a set that takes part in a hand-over. Such a set deletes
// no machines, and hands over unavailable machines first.
func (s *simulatedSet) remainsAvailable() int32 {
	var up int32
	for _, m := range s.machines {
		if m.state == available && !m.deleting && !slices.Contains(s.victims, m) {
			up++
		}
	}
	if s.MoveTo == "" || s.Moves == 0 {
		return up
	}
	for i, m := range s.handOverCandidates() {
		if s.ByClass {
			break
		}
		if s.BySelection && m.state == available && int32(i) < s.live()-s.replicas {
			up-- // This machine may be handed over.
		}
	}
	if s.BySelection || s.ByClass {
		return up
	}
	return min(up, s.replicas)
}

func (w *simulatedDeployment) notToBeDeleted() (n int32) {
	for _, s := range w.sets {
		if s.MoveTo != "" || s.ReceiveFrom != "" {
			n += s.live()
		} else {
			n += min(s.live(), s.replicas)
		}
	}
	return n
}

func (s *simulatedSet) handOverCandidates() []*simulatedMachine {
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

// order returns the live machines in deletion order. At equal precedence, available machines come first.
func (s *simulatedSet) order() []*simulatedMachine {
	rank := func(m *simulatedMachine) int {
		switch {
		case m.marked && m.state == available:
			return 0
		case m.marked:
			return 1
		}
		return map[machineState]int{failed: 2, comingUp: 3, unhealthyState: 4, updateInProgress: 4, available: 5,
			updatePending:  5,
			updateRejected: 5}[m.state]
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

// decide makes a plan for the set, unless an earlier plan is still in progress.
func (w *simulatedDeployment) decide(s *simulatedSet) {
	if s.creates > 0 || len(s.victims) > 0 || len(s.toHandOver) > 0 {
		return
	}
	s.decidedOn = s.generation
	switch live := s.live(); {
	case s.MoveTo != "":
		candidates := slices.DeleteFunc(s.handOverCandidates(), func(m *simulatedMachine) bool {
			return s.ByClass && (m.state == failed || !strings.Contains(w.classes[s.MoveTo], m.class))
		})
		s.handOverTo = s.MoveTo
		s.toHandOver = candidates[:max(0, min(s.Moves, live-s.replicas, int32(len(candidates))))]
	case live > s.replicas && s.ReceiveFrom != "":
	case live < s.replicas && !s.noCreate && !w.frozen && !w.receives(s):
		s.creates = s.replicas - live
	case live > s.replicas:
		s.victims = s.order()[:live-s.replicas]
	}
}

// act creates, deletes or hands over one machine of the set. It returns false if there was nothing to do.
func (w *simulatedDeployment) act(s *simulatedSet) bool {
	w.t.Helper()
	defer w.countEffect()
	switch {
	case len(s.toHandOver) > 0:
		w.handOverOne(s)
	case s.creates > 0:
		s.creates--
		w.machines++
		m := &simulatedMachine{name: fmt.Sprintf("%s%d", s.name, w.machines), state: comingUp, since: w.clock, wanted: s.name}
		w.checkCreated(s)
		if classes := w.classes[s.name]; classes != "" {
			m.class = string(classes[len(s.machines)%len(classes)])
		}
		s.machines = append(s.machines, m)
		var all int32
		for _, other := range w.sets {
			all += other.live()
		}
		if all > w.allowed {
			w.t.Fatalf("set %s created machine %d of at most %d\n%s", s.name, all, w.allowed, w.log)
		}
	case len(s.victims) > 0:
		victim := s.victims[0]
		s.victims = s.victims[1:]
		if victim.state == available && !victim.deleting && w.availableNow() <= w.replicas-w.bounds().MaxUnavailable {
			// Keep the available machine and delete an unavailable one.
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

func (w *simulatedDeployment) availableNow() (n int32) {
	for _, s := range w.sets {
		for _, m := range s.machines {
			if m.state == available && !m.deleting {
				n++
			}
		}
	}
	return n
}

func (s *simulatedSet) unavailable() *simulatedMachine {
	for _, m := range s.machines {
		if m.state != available && !m.deleting && !slices.Contains(s.victims, m) {
			return m
		}
	}
	return nil
}

func (w *simulatedDeployment) receives(s *simulatedSet) bool {
	from := w.set(s.ReceiveFrom)
	return from != nil && from.MoveTo == s.name
}

// handOverOne hands one machine over unless it was changed meanwhile.
func (w *simulatedDeployment) handOverOne(s *simulatedSet) {
	w.t.Helper()
	m, to := s.toHandOver[0], w.set(s.handOverTo)
	s.toHandOver = s.toHandOver[1:]
	switch {
	case s.MoveTo == "" && (to == nil || to.ReceiveFrom != s.name):
		s.toHandOver = nil // Before the set hands machines over, it confirms that the receiving set is ready.
		return
	case m.deleting || !slices.Contains(s.machines, m) || w.manual && !m.selected:
		return // The machine was changed by another client meanwhile.
	case to == nil || to.ReceiveFrom != s.name:
		w.t.Fatalf("set %s hands machine %s over to %q, which is not ready\n%s", s.name, m.name, s.handOverTo, w.log)
	}
	s.remove(m)
	m.selected, m.wanted = false, to.name
	to.machines = append(to.machines, m)
	if s.ByClass {
		return
	}
	switch m.state {
	case available, updateRejected, updateInProgress:
		w.setState(m, updatePending)
	}
}

func (s *simulatedSet) report() {
	if s.creates == 0 && len(s.victims) == 0 && len(s.toHandOver) == 0 {
		s.observed = s.decidedOn
	}
}

func (w *simulatedDeployment) setState(m *simulatedMachine, state machineState) {
	if m.state != state {
		m.state, m.since = state, w.clock
		if state == available {
			w.checkKubelet(m)
			m.kubelet = m.wanted
		}
	}
}

func (s *simulatedSet) remove(m *simulatedMachine) {
	s.machines = slices.DeleteFunc(s.machines, func(o *simulatedMachine) bool { return o == m })
}
