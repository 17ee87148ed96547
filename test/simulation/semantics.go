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

// Semantics is a behavior of a cloud that the driver contract allows. The behavior lasts for the whole run.
// Drivers must hide some further behavior, so the tests of drivers check it: several spellings of provider IDs,
// answers that are too large to read, and instances of other installations with the same names.
type Semantics string

// The semantics.
const (
	// ReadsLate: a read by provider ID does not find a new instance before lookups by tag find it.
	ReadsLate Semantics = "reads-late"
	// ReadsFlicker: a replica answers every third read by provider ID, and this replica does not have the instance. The
	// replica gets the instance after flickersFor. After flickersEvery, it loses the instance again. According to the
	// driver contract, an instance is gone only if a process does not find it in two reads, with more time between them
	// than flickersFor.
	ReadsFlicker Semantics = "reads-flicker"
	// ReadsStale: for staleFor, reads and lists show a deleted instance in the state in which it was running.
	ReadsStale Semantics = "reads-stale"
	// TagsLate: answers do not contain the tags of a new instance before lookups by tag find it.
	TagsLate Semantics = "tags-late"
	// ListsLate: a list does not contain instances that were created within the last listedLate. A list still contains
	// instances that were deleted within this time.
	ListsLate Semantics = "lists-late"
	// ListsShort: every second list does not contain one of its pages.
	ListsShort Semantics = "lists-short"
	// ListsRepeat: the second page of a list repeats the entries of the first page, in another order.
	ListsRepeat Semantics = "lists-repeat"
	// AnswersLost: the answers to every third change are lost.
	AnswersLost Semantics = "answers-lost"
	// DoneLate: every third change returns an error, but takes effect later. Creations and tags take effect within
	// CreateSettle, and deletions after deletedLate.
	DoneLate Semantics = "done-late"
	// ThrottledOften: a third of the calls are throttled. A pseudo-random number decides which ones. Half of these answers
	// contain a RetryAfter.
	ThrottledOften Semantics = "throttled"
	// StateGoesBack: every second read of a running instance returns the state pending.
	StateGoesBack Semantics = "state-goes-back"
	// PartsRemain: after an instance is deleted, a disk or an interface remains for partsFor. The deletion of this part
	// takes that long.
	PartsRemain Semantics = "parts-remain"
	// QuotaFreesLate: after its deletion, an instance counts against the quota for the time quotaFor.
	QuotaFreesLate Semantics = "quota-frees-late"
	// CredentialsExpire: in each period of expiresEvery, all calls are rejected for the time expiredFor.
	CredentialsExpire Semantics = "credentials-expire"
	// ClockAhead and ClockBehind: the times in the answers of the cloud are wrong by clockOff.
	ClockAhead  Semantics = "clock-ahead"
	ClockBehind Semantics = "clock-behind"
	// ListsReturn: some time after its deletion, an instance appears again in lists and lookups by tag. The
	// instance appears in the time from returnsAfter to returnsUntil after its deletion. A read by provider ID
	// does not find the instance during this time.
	ListsReturn Semantics = "lists-return"
	// NoHost: the cloud accepts all instances. However, two of every four instances fail after failsAfter, because there
	// is no capacity.
	NoHost Semantics = "no-host"
	// GivesUp: the cloud accepts all instances. However, two of every four instances fail after failsAfter, and the cloud
	// gives no reason.
	GivesUp Semantics = "gives-up"
	// ReportsFailed: the cloud reports an instance as failed after it has become a Node, but the instance continues to
	// run.
	ReportsFailed Semantics = "reports-failed"
	// PartsUnattached: lists show the parts of an instance as unattached during two times: until attachedAfter after the
	// creation of the instance, and for partsFor after its deletion.
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

// onlyReports reports whether the semantics only affect the answers of the cloud, and not what the cloud does. Such
// semantics must not cause additional instances.
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

// Habits is the list of all semantics that one cloud has.
type Habits []Semantics

// ParseHabits parses the names of semantics, which are separated by "+".
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

// String returns the semantics in the format that ParseHabits parses.
func (h Habits) String() string {
	parts := make([]string, len(h))
	for i, s := range h {
		parts[i] = string(s)
	}
	return strings.Join(parts, "+")
}

// Under returns the same scenario with a cloud that has the given semantics.
func (p *Prepared) Under(h Habits) *Prepared {
	out := *p
	out.Habits = h
	return &out
}

// past is the additional state of a cloud with semantics.
type past struct {
	habits Habits
	// ghosts contains deleted instances that reads may still return.
	ghosts []ghost
	// removals contains deletions that were requested but not carried out yet.
	removals []removal
	// reads, lists, writes and all count the calls that some semantics may change. throttled counts the throttled calls.
	reads, lists, writes, all, throttled int
	// accepted is the number of creations in a cloud with semantics. failedAt contains the time at which an instance of
	// each machine last failed.
	accepted int
	failedAt map[types.UID]time.Time
	// unreported contains instances that ran a kubelet, but were deleted before the cloud returned them in any answer.
	unreported map[string]bool
	// began is the time at which the run began. quiet is true after the world has settled.
	began time.Time
	quiet bool
}

// ghost is a deleted instance in the state in which it was running, with the time of its deletion.
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

// rest ends the semantics that would keep causing writes in a settled world. For example, the orphan collection
// writes a condition whenever its list fails or shows other instances than before.
func (p *past) rest() {
	p.ghosts, p.quiet = nil, true
}

// settling returns the time for which the cloud may still show an earlier state.
func (p *past) settling() time.Duration {
	if len(p.habits) == 0 {
		return 0
	}
	return listedLate + clockOff
}

// listsSettle returns the time from which lists are correct about orphans and about deleted instances with a Node.
// Before this time, no process can remove these orphans and Nodes. If lists are not late, the time is zero.
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

// keepGhost is called when an instance is deleted, and keeps a copy of it.
func (c *Cloud) keepGhost(in *instance) {
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
	g.State, g.trail = provider.StateRunning, trail{givenAway: in.trail.givenAway}
	c.past.ghosts = append(c.past.ghosts, g)
}

// ghostOf returns a deleted instance if the function is accepts it and less time than within has passed since the
// deletion. ghostOf returns nil if there is no such instance.
func (c *Cloud) ghostOf(within time.Duration, is func(*instance) bool) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; c.now().Before(g.gone.Add(within)) && is(&g.instance) {
			return &g.instance
		}
	}
	return nil
}

// refuses returns an error if the cloud rejects a call, and nil if it accepts the call.
func (d driver) refuses() error {
	p, w := &d.past, d.process.world
	if err := d.checkRateLimit(); err != nil {
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

// pseudoRandom returns unrelated numbers for consecutive numbers.
func pseudoRandom(n int) uint32 { return uint32(n) * 2654435761 >> 8 }

// mishap decides what goes wrong with a change: the answer may be lost, or the change may take effect late.
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

// exhausted returns an error if deleted instances still use up the quota.
func (c *Cloud) exhausted() error {
	if c.past.has(QuotaFreesLate) && c.ghostOf(quotaFor, func(*instance) bool { return true }) != nil {
		return provider.Errorf(provider.ResourceExhausted, "the quota is used up")
	}
	return nil
}

// shows returns an existing instance as a read returns it, or nil if the read does not find the instance.
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

// skew adds the error of the cloud's clock to the times in an answer.
func (p *past) skew(out *provider.Instance) {
	switch {
	case p.has(ClockAhead):
		out.LaunchTime = out.LaunchTime.Add(clockOff)
	case p.has(ClockBehind):
		out.LaunchTime = out.LaunchTime.Add(-clockOff)
	}
}

// leftOf reports whether parts of a deleted instance still exist.
func (c *Cloud) leftOf(req provider.DeleteRequest) bool {
	return c.past.has(PartsRemain) && c.ghostOf(partsFor, func(in *instance) bool {
		return in.ProviderID == req.ProviderID || req.ProviderID == "" && in.MachineUID == req.Machine.UID
	}) != nil
}

// listing returns the answer to a list request. The semantics may add and remove instances. asked selects the requested
// instances.
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

// elapseRemovals carries out all deletions that are due.
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

// madeInAll returns the total number of instances that the cloud has created.
func (c *Cloud) madeInAll() (n int) {
	for made := range maps.Values(c.made) {
		n += made
	}
	return n
}
