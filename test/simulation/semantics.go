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

// Semantics is a behaviour of a cloud that the driver contract allows, and that a run can have from its beginning to
// its end. Behaviour that a driver must hide from Machinist is left to the tests of drivers: several spellings of
// provider IDs, answers too large to read, and instances of others that have the names of ours.
type Semantics string

// The semantics.
const (
	// ReadsLate: a read by provider ID does not find an instance until lookups by tag find it.
	ReadsLate Semantics = "reads-late"
	// ReadsFlicker: every third read by provider ID is answered from a replica that lacks the instance. The replica has
	// it after flickersFor, for flickersEvery. By the driver contract, an instance is gone only if two reads of one
	// process that are further apart than that do not find it.
	ReadsFlicker Semantics = "reads-flicker"
	// ReadsStale: reads and lists show a deleted instance for staleFor as it was when it ran.
	ReadsStale Semantics = "reads-stale"
	// TagsLate: an instance is shown without its tags until lookups by tag find it.
	TagsLate Semantics = "tags-late"
	// ListsLate: a list lacks instances that were created in the last listedLate, and contains those deleted since then.
	ListsLate Semantics = "lists-late"
	// ListsShort: every other list lacks a page.
	ListsShort Semantics = "lists-short"
	// ListsRepeat: the second page of a list repeats the entries of the first one in another order.
	ListsRepeat Semantics = "lists-repeat"
	// AnswersLost: the answer to every third change is lost.
	AnswersLost Semantics = "answers-lost"
	// DoneLate: every third change fails and is carried out anyway: creations and tags within CreateSettle, deletions
	// after deletedLate.
	DoneLate Semantics = "done-late"
	// ThrottledOften: a pseudo-random third of the calls is throttled. Every other of these answers has a Retry-After.
	ThrottledOften Semantics = "throttled"
	// StateGoesBack: every other read of a running instance shows it as pending.
	StateGoesBack Semantics = "state-goes-back"
	// PartsRemain: a disk or an interface is left for partsFor after the instance is gone. Its deletion takes that long.
	PartsRemain Semantics = "parts-remain"
	// QuotaFreesLate: a deleted instance counts against the quota for quotaFor.
	QuotaFreesLate Semantics = "quota-frees-late"
	// CredentialsExpire: all calls are refused for expiredFor of every expiresEvery.
	CredentialsExpire Semantics = "credentials-expire"
	// ClockAhead and ClockBehind: the times in the cloud's answers are wrong by clockOff.
	ClockAhead  Semantics = "clock-ahead"
	ClockBehind Semantics = "clock-behind"
	// ListsReturn: lists and lookups by tag show a deleted instance again, from returnsAfter to returnsUntil after its
	// deletion. A read by its provider ID does not find it.
	ListsReturn Semantics = "lists-return"
	// NoHost: two of every four instances are accepted and fail after failsAfter for lack of capacity.
	NoHost Semantics = "no-host"
	// GivesUp: two of every four instances are accepted and fail after failsAfter, and the cloud gives no reason.
	GivesUp Semantics = "gives-up"
	// ReportsFailed: an instance that has become a Node is reported as failed but continues to run.
	ReportsFailed Semantics = "reports-failed"
	// PartsUnattached: lists show the parts of an instance as unattached, until attachedAfter after its creation, and
	// for partsFor after its deletion.
	PartsUnattached Semantics = "parts-unattached"
)

// AllSemantics returns all semantics.
func AllSemantics() []Semantics {
	return []Semantics{
		ReadsLate, ReadsFlicker, ReadsStale, TagsLate, ListsLate, ListsShort, ListsRepeat, AnswersLost, DoneLate,
		ThrottledOften,
		StateGoesBack, PartsRemain, QuotaFreesLate, CredentialsExpire, ClockAhead, ClockBehind,
		ListsReturn, NoHost, GivesUp, ReportsFailed, PartsUnattached,
	}
}

// onlyReports reports whether the semantics concern only the cloud's answers and not its actions. They must not cause
// an additional instance.
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
	attachedAfter = 5 * time.Minute // This is more than the minimum age of collected parts.
)

// Habits are the semantics of one cloud.
type Habits []Semantics

// ParseHabits parses semantics that are separated by "+".
func ParseHabits(text string) (Habits, error) {
	var out Habits
	for name := range strings.SplitSeq(text, "+") {
		if name == "" {
			continue
		}
		if !slices.Contains(AllSemantics(), Semantics(name)) {
			return nil, fmt.Errorf("unknown cloud semantics %q; known are %v", name, AllSemantics())
		}
		out = append(out, Semantics(name))
	}
	return out, nil
}

// String returns the semantics in the form that ParseHabits parses.
func (h Habits) String() string {
	parts := make([]string, len(h))
	for i, s := range h {
		parts[i] = string(s)
	}
	return strings.Join(parts, "+")
}

// Under returns the scenario with a cloud that has these semantics.
func (p *Prepared) Under(h Habits) *Prepared {
	out := *p
	out.Habits = h
	return &out
}

// past is the state of a cloud with semantics in addition to its instances.
type past struct {
	habits Habits
	// ghosts are deleted instances that reads may still show.
	ghosts []ghost
	// removals are requested deletions that have not been carried out.
	removals []removal
	// reads, lists, writes and all count the calls that some semantics may change. throttled counts the throttled calls.
	reads, lists, writes, all, throttled int
	// accepted counts the creations under semantics. failedAt is when an instance of each machine last failed.
	accepted int
	failedAt map[types.UID]time.Time
	// unreported contains instances that ran a kubelet and were deleted before any answer showed them.
	unreported map[string]bool
	// began is when the run began. quiet is true once everything is settled.
	began time.Time
	quiet bool
}

// ghost is a deleted instance as it was when it ran, and the time of its deletion.
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
	p.failedAt = maps.Clone(p.failedAt)
	return p
}

func (p *past) has(s Semantics) bool {
	if p.quiet && (s == ThrottledOften || s == CredentialsExpire || s == ListsShort) {
		return false
	}
	return slices.Contains(p.habits, s)
}

// rest ends the semantics that keep a fleet from being idle. The orphan collection writes a condition if its list
// fails or shows other instances than before.
func (p *past) rest() {
	p.ghosts, p.quiet = nil, true
}

// settling returns for how long the cloud may still show an earlier state.
func (p *past) settling() time.Duration {
	if len(p.habits) == 0 {
		return 0
	}
	return listedLate + clockOff
}

// listsSettle returns when lists are correct about each instance without a Machine, and about each deleted instance
// with a Node. Before that time, no process can remove them. It is zero unless lists are late.
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

// goes records that an instance is gone.
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

// ghostOf returns a matching instance that was deleted less than the given time ago and is still shown. It returns nil
// if there is no such instance.
func (c *Cloud) ghostOf(within time.Duration, is func(*instance) bool) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; c.now().Before(g.gone.Add(within)) && is(&g.instance) {
			return &g.instance
		}
	}
	return nil
}

// refuses returns the error of a call that is rejected, nil for an accepted call.
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
	case p.has(ThrottledOften) && pseudoRandom(p.all)%3 == 0:
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

// pseudoRandom maps consecutive numbers to unrelated ones.
func pseudoRandom(n int) uint32 { return uint32(n) * 2654435761 >> 8 }

// mishap reports what goes wrong with a change: its answer is lost, or it is carried out late.
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

// exhausted returns an error while the quota is not free again.
func (c *Cloud) exhausted() error {
	if c.past.has(QuotaFreesLate) && c.ghostOf(quotaFor, func(*instance) bool { return true }) != nil {
		return provider.Errorf(provider.ResourceExhausted, "the quota is used up")
	}
	return nil
}

// shows returns how a read shows an existing instance, or nil if the read does not find it.
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

// skew applies the error of the cloud's clock to an answer.
func (p *past) skew(out *provider.Instance) {
	switch {
	case p.has(ClockAhead):
		out.LaunchTime = out.LaunchTime.Add(clockOff)
	case p.has(ClockBehind):
		out.LaunchTime = out.LaunchTime.Add(-clockOff)
	}
}

// leftOf reports whether parts of a deleted instance are left.
func (c *Cloud) leftOf(req provider.DeleteRequest) bool {
	return c.past.has(PartsRemain) && c.ghostOf(partsFor, func(in *instance) bool {
		return in.ProviderID == req.ProviderID || req.ProviderID == "" && in.MachineUID == req.Machine.UID
	}) != nil
}

// listing returns the answer to a list: the shown instances, as changed by the semantics. asked selects the listed
// ones.
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
			if asked(&g.instance) && (c.now().Before(g.gone.Add(within)) || p.reappears(g, c.now())) {
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

// elapseRemovals carries out the deletions that are due.
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

// madeInAll returns the total number of instances created.
func (c *Cloud) madeInAll() (n int) {
	for made := range maps.Values(c.made) {
		n += made
	}
	return n
}
