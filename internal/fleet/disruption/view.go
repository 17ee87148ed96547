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

// Candidate is a machine that a controller wants to disrupt.
type Candidate struct {
	Machine *v1beta1.Machine
	Reason  v1beta1.DisruptionReason
	// firstDenial is the time at which a disruption of the machine was first denied, or zero.
	firstDenial time.Time
}

// Denial describes a candidate that must not be disrupted now.
type Denial struct {
	Candidate
	// Budget is the name of the budget that has no room, or "" if the machine itself is exempt.
	Budget string
	// IsPersistent is true if the denial stays even after all other disruptions have ended, because the budget allows
	// no disruption or the machine is exempt.
	IsPersistent bool
	// EndTime holds the time at which the denial may end, because a window opens or closes or an exemption ends. The
	// field is zero if no such time is known.
	EndTime time.Time
	// Explanation contains a text that explains the denial with current numbers. The text has no full stop.
	Explanation string
}

// Summary explains the denial for a condition, without numbers that change often.
func (d Denial) Summary() string {
	if d.Budget == "" {
		return d.Explanation
	}
	text := fmt.Sprintf("MachineDisruptionBudget %s allows no more disruptions now (reason %s)", d.Budget, d.Reason)
	if d.IsPersistent {
		text = fmt.Sprintf("MachineDisruptionBudget %s allows no disruption (reason %s)", d.Budget, d.Reason)
	}
	return text + untilText(d.EndTime)
}

func untilText(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return ", until " + at.UTC().Format(time.RFC3339)
}

// agingDelay is how long a candidate waits before it takes precedence over candidates with more urgent reasons.
// Otherwise machines that keep breaking would block all other disruptions.
const agingDelay = time.Hour

// View compares the machines of a namespace with its budgets. All machines are observed at the same time. A View counts
// its own grants, so only one goroutine may use it.
type View struct {
	now  time.Time
	uses []*usage
	// machines holds all machines of the namespace.
	machines []*v1beta1.Machine
	// disruptedMachines holds the UIDs of the disrupted machines.
	disruptedMachines map[types.UID]bool
}

type usage struct {
	*Budget
	counted                      bool
	selected, disrupted, allowed int
}

// NewView returns the view of a namespace. The function granted may be nil. It reports whether a budget has already
// granted the disruption of a machine, in case the Machine in the list does not show the disruption yet.
func NewView(budgets []*Budget, machines []*v1beta1.Machine, granted func(types.UID) bool, now time.Time) *View {
	v := &View{now: now, machines: machines, disruptedMachines: map[types.UID]bool{}}
	for _, b := range budgets {
		v.uses = append(v.uses, &usage{Budget: b})
	}
	if len(budgets) == 0 {
		return v
	}
	for _, m := range machines {
		if _, is := ReasonOf(m); is || granted != nil && granted(m.UID) {
			v.disruptedMachines[m.UID] = true
		}
	}
	return v
}

func (v *View) count(u *usage) {
	if u.counted {
		return
	}
	u.counted = true
	for _, m := range v.machines {
		if !u.Selects(m.Labels) {
			continue
		}
		u.selected++
		if v.disruptedMachines[m.UID] {
			u.disrupted++
		}
	}
	u.allowed = u.AllowedDisruptions(u.selected)
}

// Decide decides which candidates of one controller may be disrupted, and denies the remaining candidates. Candidates
// of other controllers are not granted. If these candidates take precedence, their disruptions are reserved.
func (v *View) Decide(candidates, others []Candidate) (granted []Candidate, denied []Denial) {
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
		why := v.takeRoom(e.Candidate)
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

// compare orders candidates by precedence. Candidates that waited longer than agingDelay come first, starting with the
// longest wait. Other candidates are ordered by reason, and then by compareWithin.
func (v *View) compare(a, b Candidate) int {
	overdue := func(c Candidate) bool { return !c.firstDenial.IsZero() && v.now.Sub(c.firstDenial) >= agingDelay }
	if overdue(a) && overdue(b) {
		return cmp.Or(a.firstDenial.Compare(b.firstDenial), cmp.Compare(a.Machine.UID, b.Machine.UID))
	}
	urgency := func(c Candidate) int { return slices.Index(v1beta1.DisruptionReasons, c.Reason) }
	order := 0
	switch {
	case overdue(a):
		order = -1
	case overdue(b):
		order = 1
	}
	return cmp.Or(order, cmp.Compare(urgency(a), urgency(b)), compareWithin(a, b))
}

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
	return 0 // Candidates keep the order in which their controller passed them.
}

// takeRoom counts the candidate as disrupted in every budget that selects it. If one of these budgets allows no further
// disruption for the candidate's reason, takeRoom returns a denial instead. Machines without pods and machines that are
// already disrupted are not counted. takeRoom also returns a denial if the machine is exempt from disruptions.
func (v *View) takeRoom(c Candidate) *Denial {
	if !MayRunPods(c.Machine) {
		return nil
	}
	// An exempt machine must not be deleted, even if it is already disrupted by an update in place.
	if until, exempt := ExemptUntil(c.Machine, v.now); exempt && machinestate.IsLive(c.Machine) {
		return &Denial{Candidate: c, IsPersistent: true, EndTime: until, Explanation: exemptionText(c.Machine, until)}
	}
	if v.disruptedMachines[c.Machine.UID] {
		return nil
	}
	var selecting []*usage
	for _, u := range v.uses {
		if !u.Selects(c.Machine.Labels) || !u.InForce(v.now) {
			continue
		}
		v.count(u)
		if u.disrupted >= u.allowed && u.AppliesTo(c.Reason) {
			return v.denied(c, u)
		}
		selecting = append(selecting, u)
	}
	for _, u := range selecting {
		u.disrupted++
	}
	v.disruptedMachines[c.Machine.UID] = true
	return nil
}

// BudgetUse is the current use of a budget: how many machines it selects, and how many of these machines are
// disrupted.
type BudgetUse struct {
	// Budget is the name of the budget.
	Budget string
	// Selected, Disrupted and Allowed are numbers of machines.
	Selected, Disrupted, Allowed int
	// NextChange holds the time at which the budget stops being in force, because a window opens or closes. The field
	// is zero for a budget without windows.
	NextChange time.Time
}

// BudgetUses lists the budgets that limit the disruption of a candidate now, with their numbers of machines. The
// budgets are sorted by name.
func (v *View) BudgetUses(candidates []Candidate) (uses []BudgetUse) {
	for _, u := range v.uses {
		if !u.InForce(v.now) || !slices.ContainsFunc(candidates, func(c Candidate) bool {
			return u.AppliesTo(c.Reason) && u.Selects(c.Machine.Labels)
		}) {
			continue
		}
		v.count(u)
		until, _ := u.NextChange(v.now)
		uses = append(uses, BudgetUse{u.Name, u.selected, u.disrupted, u.allowed, until})
	}
	slices.SortFunc(uses, func(a, b BudgetUse) int { return cmp.Compare(a.Budget, b.Budget) })
	return uses
}

// String returns a sentence about the use of the budget, without a full stop.
func (u BudgetUse) String() string {
	text := fmt.Sprintf("MachineDisruptionBudget %s: %d of %s disrupted, at most %d allowed", u.Budget, u.Disrupted,
		wording.Count(u.Selected, "machine"), u.Allowed)
	return text + untilText(u.NextChange)
}

func (v *View) denied(c Candidate, u *usage) *Denial {
	d := &Denial{Candidate: c, Budget: u.Name, IsPersistent: u.allowed == 0}
	if at, changes := u.NextChange(v.now); changes {
		d.EndTime = at
	}
	d.Explanation = d.Summary()
	if !d.IsPersistent {
		d.Explanation += fmt.Sprintf(": %d of %s disrupted, at most %d allowed", u.disrupted,
			wording.Count(u.selected, "machine"), u.allowed)
	}
	return d
}
