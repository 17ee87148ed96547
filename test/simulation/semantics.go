package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/pkg/provider"
)

// Semantics is a way of a cloud that the contract of drivers leaves room for, and that a run may have from its
// beginning to its end. What a driver has to hide from Machinist is not among them, and is for the tests of drivers:
// provider IDs that are spelled in several ways, answers too large to read, other people's instances that have the
// names of ours.
type Semantics string

// The semantics.
const (
	// ReadsLate: a read by provider ID does not know an instance until lookups by tag find it.
	ReadsLate Semantics = "reads-late"
	// ReadsFlicker: every third read by provider ID is answered from a copy that lacks the instance. That copy has it
	// flickersFor later, for flickersEvery: what is missing in two reads of one process that are further apart is gone,
	// by the contract of drivers.
	ReadsFlicker Semantics = "reads-flicker"
	// ReadsStale: reads and lists show an instance that is gone for staleFor, as it was when it ran.
	ReadsStale Semantics = "reads-stale"
	// TagsLate: an instance is shown without its tags until lookups by tag find it.
	TagsLate Semantics = "tags-late"
	// ListsLate: a list lacks what was made in the last listedLate, and has what has gone since then.
	ListsLate Semantics = "lists-late"
	// ListsShort: a page of every other list is missing.
	ListsShort Semantics = "lists-short"
	// ListsRepeat: the second page of a list has the entries of the first once more, in another order.
	ListsRepeat Semantics = "lists-repeat"
	// AnswersLost: of every third call that changes something the answer is lost.
	AnswersLost Semantics = "answers-lost"
	// DoneLate: every third call that changes something fails and is carried out anyway, within CreateSettle where
	// something is made or tagged, and after deletedLate where it is removed.
	DoneLate Semantics = "done-late"
	// ThrottledOften: a third of the calls, in no order, are too many. Every other answer of those says when to come
	// again.
	ThrottledOften Semantics = "throttled"
	// StateGoesBack: every other read of a running instance shows it as it was when it was pending.
	StateGoesBack Semantics = "state-goes-back"
	// PartsRemain: a disk or an interface is left for partsFor after the instance has gone, and its deletion lasts so
	// long.
	PartsRemain Semantics = "parts-remain"
	// QuotaFreesLate: what has gone counts for quotaFor.
	QuotaFreesLate Semantics = "quota-frees-late"
	// CredentialsExpire: for expiredFor of every expiresEvery all calls are refused.
	CredentialsExpire Semantics = "credentials-expire"
	// ClockAhead and ClockBehind: the times in the cloud's answers are clockOff away from the right ones.
	ClockAhead  Semantics = "clock-ahead"
	ClockBehind Semantics = "clock-behind"
	// ListsReturn: lists and lookups by tag have an instance that is gone once more, from returnsAfter to returnsUntil
	// after it went. A read by its provider ID does not know it.
	ListsReturn Semantics = "lists-return"
	// NoHost: two of every four instances are accepted and fail failsAfter later, for lack of capacity.
	NoHost Semantics = "no-host"
	// GivesUp: two of every four instances are accepted and fail failsAfter later, and the cloud does not say why.
	GivesUp Semantics = "gives-up"
	// ReportsFailed: an instance that has become a Node is reported failed, and runs on.
	ReportsFailed Semantics = "reports-failed"
	// PartsUnattached: the parts of an instance belong to none, as lists say, until attachedAfter after it was made, and
	// for partsFor after it has gone.
	PartsUnattached Semantics = "parts-unattached"
)

// AllSemantics are all that there are.
func AllSemantics() []Semantics {
	return []Semantics{
		ReadsLate, ReadsFlicker, ReadsStale, TagsLate, ListsLate, ListsShort, ListsRepeat, AnswersLost, DoneLate,
		ThrottledOften,
		StateGoesBack, PartsRemain, QuotaFreesLate, CredentialsExpire, ClockAhead, ClockBehind,
		ListsReturn, NoHost, GivesUp, ReportsFailed, PartsUnattached,
	}
}

// onlyReports reports whether the semantics concern what the cloud says and not what it does: no instance more is
// made for them.
func (s Semantics) onlyReports() bool {
	switch s {
	case AnswersLost, DoneLate, QuotaFreesLate, NoHost, GivesUp:
		return false
	}
	return true
}

const (
	flickersFor   = 10 * time.Second
	flickersEvery = 20 * time.Minute
	staleFor      = 40 * time.Second
	listedLate    = 10 * time.Minute
	deletedLate   = 3 * time.Minute
	partsFor      = time.Minute
	quotaFor      = 2 * time.Minute
	expiresEvery  = 20 * time.Minute
	expiredFor    = 4 * time.Minute
	clockOff      = 10 * time.Minute
	returnsAfter  = 20 * time.Second
	returnsUntil  = 50 * time.Second
	failsAfter    = 5 * time.Second
	attachedAfter = 5 * time.Minute // More than the age from which parts are collected.
)

// Habits are the semantics of a cloud.
type Habits []Semantics

// ParseHabits reads semantics that are separated by "+".
func ParseHabits(text string) (Habits, error) {
	var out Habits
	for name := range strings.SplitSeq(text, "+") {
		if name == "" {
			continue
		}
		if !slices.Contains(AllSemantics(), Semantics(name)) {
			return nil, fmt.Errorf("%q is no semantics of a cloud; there are %v", name, AllSemantics())
		}
		out = append(out, Semantics(name))
	}
	return out, nil
}

// String returns the semantics as ParseHabits reads them.
func (h Habits) String() string {
	parts := make([]string, len(h))
	for i, s := range h {
		parts[i] = string(s)
	}
	return strings.Join(parts, "+")
}

// Under returns the scenario in a cloud with these semantics.
func (p *Prepared) Under(h Habits) *Prepared {
	out := *p
	out.Habits = h
	return &out
}

// past is what a cloud with semantics remembers beyond its instances.
type past struct {
	habits Habits
	// ghosts are instances that are gone and that reads may show.
	ghosts []ghost
	// removals are those that were asked for and are yet to be carried out.
	removals []removal
	// reads, lists and changes count the calls, each of which may be answered another way. throttled counts those that
	// were refused.
	reads, lists, writes, all, throttled int
	// accepted counts the creations under semantics. gaveUp is when an instance of each machine last failed.
	accepted int
	gaveUp   map[types.UID]time.Time
	// unreported are instances that ran a kubelet and went before any answer had reported of them.
	unreported map[string]bool
	// began is when the run began. calm is true once everything is done.
	began time.Time
	calm  bool
}

// ghost is an instance as it was when it ran, and when it went.
type ghost struct {
	instance
	gone time.Time
}

type removal struct {
	at  time.Time
	req provider.DeleteRequest
}

func (p past) clone() past {
	p.ghosts, p.removals, p.unreported = slices.Clone(p.ghosts), slices.Clone(p.removals), maps.Clone(p.unreported)
	p.gaveUp = maps.Clone(p.gaveUp)
	return p
}

func (p *past) has(s Semantics) bool {
	if p.calm && (s == ThrottledOften || s == CredentialsExpire || s == ListsShort) {
		return false
	}
	return slices.Contains(p.habits, s)
}

// rest ends what keeps a fleet from being idle: a collection that may not list writes that down, and one that is
// shown other instances than before does.
func (p *past) rest() {
	p.ghosts, p.calm = nil, true
}

// settling is for how long the cloud may still tell what has been the case before.
func (p *past) settling() time.Duration {
	if len(p.habits) == 0 {
		return 0
	}
	return listedLate + clockOff
}

// listsSettle returns when lists tell the truth about each instance without a Machine, and about each that is gone and
// has left a Node: before that nobody can remove them. It is zero where lists are not late.
func (w *World) listsSettle() (at time.Time) {
	p := &w.cloud.past
	if !p.has(ListsLate) {
		return at
	}
	consider := func(t time.Time) {
		if t.After(at) {
			at = t
		}
	}
	for _, in := range w.cloud.instances {
		if in.owner() != "" && w.oracle.machines[in.owner()] == nil {
			consider(in.born.Add(listedLate))
		}
	}
	for i := range p.ghosts {
		g := &p.ghosts[i]
		if node := w.node(g.NodeName); node != nil && node.Spec.ProviderID == g.ProviderID {
			consider(g.gone.Add(listedLate))
		}
	}
	return at
}

// goes takes note that an instance is gone.
func (c *Cloud) goes(in *instance) {
	if len(c.past.habits) == 0 {
		return
	}
	if in.registered && !in.reported {
		if c.past.unreported == nil {
			c.past.unreported = map[string]bool{}
		}
		c.past.unreported[in.ProviderID] = true
	}
	g := ghost{*in, c.now()}
	g.State, g.trail = provider.StateRunning, trail{others: in.trail.others}
	c.past.ghosts = append(c.past.ghosts, g)
}

// ghostOf returns an instance that has gone within a time and that still shows; nil if there is none.
func (c *Cloud) ghostOf(within time.Duration, is func(*instance) bool) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; c.now().Before(g.gone.Add(within)) && is(&g.instance) {
			return &g.instance
		}
	}
	return nil
}

// refuses returns what a call is answered that is not let through, nil if it is.
func (d driver) refuses() error {
	p, w := &d.past, d.process.world
	if err := d.tooMany(); err != nil {
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps
		return err
	}
	if len(p.habits) == 0 {
		return nil
	}
	p.all++
	var err error
	switch {
	case p.has(CredentialsExpire) && d.now().Sub(p.began)%expiresEvery < expiredFor:
		err = provider.Errorf(provider.Unauthenticated, "the credentials have expired")
	case p.has(ThrottledOften) && scattered(p.all)%3 == 0:
		p.throttled++
		rejection := &provider.Error{Code: provider.Throttled, Message: "slow down"}
		if p.throttled%2 == 0 {
			rejection.RetryAfter = retryAfter
		}
		err = rejection
	default:
		return nil
	}
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return err
}

// scattered makes numbers that follow each other into such that have nothing to do with each other.
func scattered(n int) uint32 { return uint32(n) * 2654435761 >> 8 }

// mishap says what becomes of a call that changes something: its answer is lost, or it is carried out late.
func (d driver) mishap() (lost, late bool) {
	p := &d.past
	if len(p.habits) == 0 {
		return false, false
	}
	p.writes++
	lost, late = p.has(AnswersLost) && p.writes%3 == 1, p.has(DoneLate) && p.writes%3 == 1
	if w := d.process.world; lost || late {
		w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	}
	return lost, late
}

// exhausted refuses what is asked for while the quota is not free again.
func (c *Cloud) exhausted() error {
	if c.past.has(QuotaFreesLate) && c.ghostOf(quotaFor, func(*instance) bool { return true }) != nil {
		return provider.Errorf(provider.ResourceExhausted, "the quota is used up")
	}
	return nil
}

// shows says how a read shows an instance that is there; nil if it does not.
func (c *Cloud) shows(in *instance) *provider.Instance {
	out, p := in.describe(), &c.past
	if len(p.habits) == 0 {
		in.reported = true
		return out
	}
	late := in.visible.After(c.now())
	p.reads++
	since := c.now().Sub(in.missing)
	behind := p.has(ReadsFlicker) && p.reads%3 == 2 && (since < flickersFor || since >= flickersEvery)
	if behind && since >= flickersEvery {
		in.missing = c.now()
	}
	if p.has(ReadsLate) && late || behind {
		return nil
	}
	in.reported = true
	if p.has(TagsLate) && late {
		out.ClusterID, out.MachineUID, out.MachineKey = "", "", ""
	}
	p.fail(in, out)
	if p.has(StateGoesBack) && p.reads%2 == 0 && out.State == provider.StateRunning {
		out.State = provider.StatePending
	}
	p.skew(out)
	return out
}

// skew puts the cloud's clock into an answer.
func (p *past) skew(out *provider.Instance) {
	switch {
	case p.has(ClockAhead):
		out.LaunchTime = out.LaunchTime.Add(clockOff)
	case p.has(ClockBehind):
		out.LaunchTime = out.LaunchTime.Add(-clockOff)
	}
}

// leftOf reports whether parts of an instance are left.
func (c *Cloud) leftOf(req provider.DeleteRequest) bool {
	return c.past.has(PartsRemain) && c.ghostOf(partsFor, func(in *instance) bool {
		return in.ProviderID == req.ProviderID || req.ProviderID == "" && in.MachineUID == req.Machine.UID
	}) != nil
}

// listing returns a list as it is shown, of instances that it was asked for.
func (c *Cloud) listing(shown []*instance, asked func(*instance) bool) (out []provider.Instance) {
	p := &c.past
	if len(p.habits) > 0 {
		p.lists++
		within := time.Duration(0)
		if p.has(ReadsStale) {
			within = staleFor
		}
		if p.has(ListsLate) {
			within = listedLate
			shown = slices.DeleteFunc(shown, func(in *instance) bool { return c.now().Before(in.born.Add(listedLate)) })
		}
		for i := range p.ghosts {
			g := &p.ghosts[i]
			if asked(&g.instance) && (c.now().Before(g.gone.Add(within)) || p.returned(g, c.now())) {
				shown = append(shown, &g.instance)
			}
		}
		if p.has(ListsShort) && p.lists%2 == 1 {
			shown = shown[:len(shown)/2]
		}
	}
	for _, in := range shown {
		in.reported = true
		described := in.describe()
		p.fail(in, described)
		p.skew(described)
		out = append(out, *described)
	}
	return out
}

// elapseRemovals carries out removals that are due.
func (c *Cloud) elapseRemovals(w *World) {
	due := c.past.removals
	c.past.removals = nil
	for _, r := range due {
		if r.at.After(c.now()) {
			c.past.removals = append(c.past.removals, r)
			continue
		}
		if in := c.byID(r.req.ProviderID); in != nil && in.MachineUID == r.req.Machine.UID && in.dying.IsZero() {
			in.State, in.dying = provider.StateTerminating, c.now()
			w.logf("cloud: %s is removed late", in.ProviderID)
		}
	}
}

// madeInAll is how many instances there ever were.
func (c *Cloud) madeInAll() (n int) {
	for made := range maps.Values(c.made) {
		n += made
	}
	return n
}
