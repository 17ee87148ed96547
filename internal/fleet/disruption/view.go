package disruption

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// Candidate is a machine that somebody wants to disrupt.
type Candidate struct {
	Machine *v1beta1.Machine
	Reason  v1beta1.DisruptionReason
	// asked is since when it waits for room; zero if it does not.
	asked time.Time
}

// Denial is a candidate that must not be disrupted now.
type Denial struct {
	Candidate
	// Budget is the name of the budget that has no room, "" if the machine itself is exempt.
	Budget string
	// Closed says that no room comes by itself: the budget allows none at all, or the machine is exempt.
	Closed bool
	// Until is when that may change without anybody's doing; zero if it does not.
	Until time.Time
	// Why is the whole of it for people, with the numbers of now, without a full stop.
	Why string
}

// Brief says what holds the machine back without numbers that change with every machine, for conditions.
func (h Denial) Brief() string {
	if h.Budget == "" {
		return h.Why
	}
	text := fmt.Sprintf("MachineDisruptionBudget %s has no room (%s)", h.Budget, h.Reason)
	if h.Closed {
		text = fmt.Sprintf("MachineDisruptionBudget %s allows no disruption (%s)", h.Budget, h.Reason)
	}
	return text + until(h.Until)
}

func until(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ", until " + at.UTC().Format(time.RFC3339)
}

// patience is how long a candidate waits before it goes ahead of those with a more urgent reason: otherwise machines
// that break one after the other would hold up everything else for ever.
const patience = time.Hour

// View is how far the budgets of a namespace are used at a moment. It counts what it grants, so it is asked by one
// goroutine at a time.
type View struct {
	now  time.Time
	uses []*use
	// machines are those of the namespace, disrupted some of them.
	machines  []*v1beta1.Machine
	disrupted map[types.UID]bool
}

// use is how far a budget is used.
type use struct {
	*Budget
	counted                      bool
	selected, disrupted, allowed int
}

// NewView returns the view of a namespace with these budgets and machines. granted are machines that count as
// disrupted although that does not show yet.
func NewView(budgets []*Budget, machines []*v1beta1.Machine, granted func(types.UID) bool, now time.Time) *View {
	v := &View{now: now, machines: machines, disrupted: map[types.UID]bool{}}
	for _, b := range budgets {
		v.uses = append(v.uses, &use{Budget: b})
	}
	if len(budgets) == 0 {
		return v
	}
	for _, m := range machines {
		if _, is := Of(m); is || granted != nil && granted(m.UID) {
			v.disrupted[m.UID] = true
		}
	}
	return v
}

// count counts the machines that the budget selects, the first time that somebody wants to know.
func (v *View) count(u *use) {
	if u.counted {
		return
	}
	u.counted = true
	for _, m := range v.machines {
		if !u.Selects(m.Labels) {
			continue
		}
		u.selected++
		if v.disrupted[m.UID] {
			u.disrupted++
		}
	}
	u.allowed = u.Allowed(u.selected)
}

// Ask divides the room: it returns which of the candidates may be disrupted now, and which not. Others are candidates
// of others: those that go before a candidate are left their room.
func (v *View) Ask(candidates, others []Candidate) (granted []Candidate, denied []Denial) {
	type entry struct {
		Candidate
		other bool
	}
	queue := make([]entry, 0, len(candidates)+len(others))
	asking := make(map[types.UID]bool, len(candidates))
	for _, c := range candidates {
		asking[c.Machine.UID] = true
		queue = append(queue, entry{Candidate: c})
	}
	for _, c := range others {
		if !asking[c.Machine.UID] {
			queue = append(queue, entry{c, true})
		}
	}
	slices.SortStableFunc(queue, func(a, b entry) int { return v.compare(a.Candidate, b.Candidate) })
	for _, e := range queue {
		why := v.take(e.Candidate)
		switch {
		case e.other:
		case why != nil:
			denied = append(denied, *why)
		default:
			granted = append(granted, e.Candidate)
		}
	}
	return granted, denied
}

// compare orders candidates where room is short: those that waited for long, the longest first, and then by reason; of
// broken machines the one that is surely broken, or for longest.
func (v *View) compare(a, b Candidate) int {
	late := func(c Candidate) bool { return !c.asked.IsZero() && v.now.Sub(c.asked) >= patience }
	if late(a) && late(b) {
		return cmp.Or(a.asked.Compare(b.asked), cmp.Compare(a.Machine.UID, b.Machine.UID))
	}
	urgency := func(c Candidate) int { return slices.Index(v1beta1.DisruptionReasons, c.Reason) }
	order := 0
	switch {
	case late(a):
		order = -1
	case late(b):
		order = 1
	}
	return cmp.Or(order, cmp.Compare(urgency(a), urgency(b)), compareWithin(a, b))
}

// compareWithin orders candidates of one reason.
func compareWithin(a, b Candidate) int {
	if a.Reason != b.Reason {
		return 0
	}
	switch a.Reason {
	case v1beta1.DisruptionRemediation:
		return CompareBroken(a.Machine, b.Machine)
	case v1beta1.DisruptionExpiry:
		return cmp.Or(a.Machine.CreationTimestamp.Compare(b.Machine.CreationTimestamp.Time),
			cmp.Compare(a.Machine.UID, b.Machine.UID))
	}
	return 0 // In the order in which they were given: their set has one.
}

// take takes the room that a candidate needs of every budget, or says what prevents that. A machine on which nothing
// runs needs none, nor does one that is disrupted already and not exempt.
func (v *View) take(c Candidate) *Denial {
	if !Serves(c.Machine) {
		return nil
	}
	// An update in place that has begun does not end an exemption from deletion.
	if until, exempt := ExemptUntil(c.Machine, v.now); exempt && machinestate.Live(c.Machine) {
		return &Denial{Candidate: c, Closed: true, Until: until, Why: exemption(c.Machine, until)}
	}
	if v.disrupted[c.Machine.UID] {
		return nil
	}
	var concerned []*use
	for _, u := range v.uses {
		if !u.Selects(c.Machine.Labels) || !u.InForce(v.now) {
			continue
		}
		v.count(u)
		if u.disrupted >= u.allowed && u.Asks(c.Reason) {
			return v.denied(c, u)
		}
		concerned = append(concerned, u)
	}
	for _, u := range concerned {
		u.disrupted++
	}
	v.disrupted[c.Machine.UID] = true
	return nil
}

// Use is how far a budget is used.
type Use struct {
	// Budget is its name.
	Budget string
	// Selected is how many machines it selects, Disrupted how many of them are disrupted, Allowed how many may be.
	Selected, Disrupted, Allowed int
	// Until is when a window changes that; zero if none does.
	Until time.Time
}

// Uses returns the budgets in force that any of the candidates has to ask, by name.
func (v *View) Uses(candidates []Candidate) (uses []Use) {
	for _, u := range v.uses {
		if !u.InForce(v.now) || !slices.ContainsFunc(candidates, func(c Candidate) bool {
			return u.Asks(c.Reason) && u.Selects(c.Machine.Labels)
		}) {
			continue
		}
		v.count(u)
		until, _ := u.NextChange(v.now)
		uses = append(uses, Use{u.Name, u.selected, u.disrupted, u.allowed, until})
	}
	slices.SortFunc(uses, func(a, b Use) int { return cmp.Compare(a.Budget, b.Budget) })
	return uses
}

// String says in words how far the budget is used.
func (u Use) String() string {
	text := fmt.Sprintf("MachineDisruptionBudget %s: %d of %s disrupted, at most %d allowed", u.Budget, u.Disrupted,
		wording.Count(u.Selected, "machine"), u.Allowed)
	return text + until(u.Until)
}

func (v *View) denied(c Candidate, u *use) *Denial {
	h := &Denial{Candidate: c, Budget: u.Name, Closed: u.allowed == 0}
	if at, changes := u.NextChange(v.now); changes {
		h.Until = at
	}
	h.Why = h.Brief()
	if !h.Closed {
		h.Why += fmt.Sprintf(": %d of %s disrupted, at most %d allowed", u.disrupted,
			wording.Count(u.selected, "machine"), u.allowed)
	}
	return h
}
