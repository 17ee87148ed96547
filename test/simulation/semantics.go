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

// Semantics names an unusual behavior of a cloud that the driver contract allows. The cloud behaves in this way for a
// whole run. Semantics does not cover behavior that drivers must hide, and that the tests of the drivers check: several
// spellings of provider IDs, oversized responses, and instances of other installations with the same names.
type Semantics string

// The semantics.
const (
	// ReadsLate means that a read by provider ID does not find a new instance until a lookup by tag finds it.
	ReadsLate Semantics = "reads-late"
	// ReadsFlicker means that every third read by provider ID goes to a replica that lacks the instance. The replica
	// finds the instance when a time of flickersFor has passed. The replica loses the instance again when the time
	// flickersEvery has passed. By the driver contract, an instance is gone only if two reads, more than flickersFor
	// apart, do not find it.
	ReadsFlicker Semantics = "reads-flicker"
	// ReadsStale means that reads and lists show a deleted instance as running for staleFor.
	ReadsStale Semantics = "reads-stale"
	// TagsLate means that responses lack the tags of a new instance until lookups by tag find it.
	TagsLate Semantics = "tags-late"
	// ListsLate means that lists are outdated by listedLate: they lack new instances and contain deleted ones.
	ListsLate Semantics = "lists-late"
	// ListsShort means that every second list lacks one of its pages.
	ListsShort Semantics = "lists-short"
	// ListsRepeat means that the second page of a list repeats the first one in another order.
	ListsRepeat Semantics = "lists-repeat"
	// AnswersLost means that every third change takes effect, but its response is lost.
	AnswersLost Semantics = "answers-lost"
	// DoneLate means that every third change returns an error, but takes effect later. Creations and tags take effect
	// within CreateSettle, and deletions after deletedLate.
	DoneLate Semantics = "done-late"
	// ThrottledOften means that a pseudo-random third of the calls are throttled. Half of these responses contain a
	// RetryAfter.
	ThrottledOften Semantics = "throttled"
	// StateGoesBack means that every second read of a running instance returns the state pending.
	StateGoesBack Semantics = "state-goes-back"
	// PartsRemain means that a disk or an interface outlives its instance by partsFor, until its own deletion is
	// complete.
	PartsRemain Semantics = "parts-remain"
	// QuotaFreesLate means that a deleted instance counts against the quota for quotaFor.
	QuotaFreesLate Semantics = "quota-frees-late"
	// CredentialsExpire means that all calls are rejected for expiredFor in each period of expiresEvery.
	CredentialsExpire Semantics = "credentials-expire"
	// ClockAhead and ClockBehind mean that the times in the cloud's responses are wrong by clockOff.
	ClockAhead  Semantics = "clock-ahead"
	ClockBehind Semantics = "clock-behind"
	// ListsReturn means that a deleted instance reappears in lists and lookups by tag, from returnsAfter to
	// returnsUntil after its deletion. Reads by provider ID do not find the deleted instance.
	ListsReturn Semantics = "lists-return"
	// NoHost means that two of every four accepted instances fail after failsAfter, because there is no capacity.
	NoHost Semantics = "no-host"
	// GivesUp means that two of every four accepted instances fail after failsAfter without a reason.
	GivesUp Semantics = "gives-up"
	// ReportsFailed means that the cloud reports an instance as failed although it continues to run. This happens after
	// the instance has registered its Node.
	ReportsFailed Semantics = "reports-failed"
	// PartsUnattached means that lists show the parts of an instance as unattached at two times: for attachedAfter
	// after the creation of the instance, and for partsFor after its deletion.
	PartsUnattached Semantics = "parts-unattached"
	// CreatesHidden means that lists and reads by provider ID do not find a new instance for createsFor. Create returns a
	// handle, with which Delete finds the instance. With this handle, Get finds every second instance.
	CreatesHidden Semantics = "creates-hidden"
)

// AllSemantics returns all semantics.
func AllSemantics() []Semantics {
	return []Semantics{
		ReadsLate, ReadsFlicker, ReadsStale, TagsLate, ListsLate, ListsShort, ListsRepeat, AnswersLost, DoneLate,
		ThrottledOften,
		StateGoesBack, PartsRemain, QuotaFreesLate, CredentialsExpire, ClockAhead, ClockBehind,
		ListsReturn, NoHost, GivesUp, ReportsFailed, PartsUnattached, CreatesHidden,
	}
}

// onlyReports reports whether the semantics affect only the responses of the cloud. If only responses are affected, no
// additional instances may be created.
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
	createsFor    = 2 * time.Minute
	attachedAfter = 5 * time.Minute // More than the minimum age of collected parts.
)

// Habits contains the unusual behaviors that a cloud has at the same time.
type Habits []Semantics

// ParseHabits parses names of semantics that are separated by "+".
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

// String returns the semantics in the format of ParseHabits.
func (h Habits) String() string {
	parts := make([]string, len(h))
	for i, s := range h {
		parts[i] = string(s)
	}
	return strings.Join(parts, "+")
}

// Under returns a copy of the scenario for a cloud that has the given semantics.
func (p *Prepared) Under(h Habits) *Prepared {
	out := *p
	out.Habits = h
	return &out
}

type past struct {
	habits   Habits
	ghosts   []ghost
	removals []removal
	// These fields count the calls that semantics may change: reads, lists, writes, and the sum in the field all.
	// throttled is the number of throttled calls.
	reads, lists, writes, all, throttled int
	// acceptedCreations is the number of creations in a cloud with semantics. failedAt contains, for each machine,
	// the time when its last instance failed.
	acceptedCreations int
	failedAt          map[types.UID]time.Time
	// failedTasks contains the codes of creations that failed before they showed an instance, by handle.
	failedTasks map[string]provider.Code
	// unreportedInstances contains instances that ran a kubelet, but were deleted before the cloud returned them.
	unreportedInstances map[string]bool
	began               time.Time
	quiet               bool
}

// ghost is the last running state of a deleted instance. gone is the time of the deletion.
type ghost struct {
	instance
	gone time.Time
}

type removal struct {
	at  time.Time
	req provider.DeleteRequest
}

func (p past) clone() past {
	p.ghosts, p.removals, p.unreportedInstances = slices.Clone(p.ghosts), slices.Clone(p.removals), maps.Clone(p.unreportedInstances)
	p.failedAt, p.failedTasks = maps.Clone(p.failedAt), maps.Clone(p.failedTasks)
	return p
}

func (p *past) has(s Semantics) bool {
	if p.quiet && (s == ThrottledOften || s == CredentialsExpire || s == ListsShort) {
		return false
	}
	return slices.Contains(p.habits, s)
}

// disableEndless turns off some semantics when the world has settled, because they would cause endless writes. For
// example, the orphan collection writes a condition whenever its list fails or changes.
func (p *past) disableEndless() {
	p.ghosts, p.quiet = nil, true
}

func (p *past) settling() time.Duration {
	if len(p.habits) == 0 {
		return 0
	}
	return listedLate + clockOff
}

// listsSettle returns the time from which lists show all orphans, and no longer show deleted instances that have a
// Node. Before this time, no process can remove these orphans and Nodes. If no semantics delay the lists, the time is
// zero.
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

func (c *Cloud) keepGhost(in *instance) {
	if len(c.past.habits) == 0 {
		return
	}
	if in.registered && !in.isReported {
		if c.past.unreportedInstances == nil {
			c.past.unreportedInstances = map[string]bool{}
		}
		c.past.unreportedInstances[in.ProviderID] = true
	}
	g := ghost{*in, c.now()}
	g.State, g.trail = provider.StateRunning, trail{givenAway: in.trail.givenAway}
	c.past.ghosts = append(c.past.ghosts, g)
}

// ghostOf finds a recently deleted instance that meets the given condition. The argument within is the maximum time
// since the deletion. If there is no such instance, ghostOf returns nil.
func (c *Cloud) ghostOf(within time.Duration, is func(*instance) bool) *instance {
	for i := range c.past.ghosts {
		if g := &c.past.ghosts[i]; c.now().Before(g.gone.Add(within)) && is(&g.instance) {
			return &g.instance
		}
	}
	return nil
}

// refuses decides whether the cloud rejects the current call, and returns the error of a rejected call.
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

// drawMishap decides whether the response to a change is lost, or the change takes effect late.
func (d driver) drawMishap() (lost, late bool) {
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

func (c *Cloud) exhausted() error {
	if c.past.has(QuotaFreesLate) && c.ghostOf(quotaFor, func(*instance) bool { return true }) != nil {
		return provider.Errorf(provider.ResourceExhausted, "the quota is used up")
	}
	return nil
}

// visibleInstance returns the instance as a read by its ID describes it, or nil if the read does not find the
// instance.
func (c *Cloud) visibleInstance(in *instance) *provider.Instance {
	out, p := in.describe(), &c.past
	if len(p.habits) == 0 {
		in.isReported = true
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
	in.isReported = true
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

func (p *past) skew(out *provider.Instance) {
	switch {
	case p.has(ClockAhead):
		out.LaunchTime = out.LaunchTime.Add(clockOff)
	case p.has(ClockBehind):
		out.LaunchTime = out.LaunchTime.Add(-clockOff)
	}
}

func (c *Cloud) leftOf(req provider.DeleteRequest) bool {
	return c.past.has(PartsRemain) && c.ghostOf(partsFor, func(in *instance) bool {
		return in.ProviderID == req.ProviderID || req.ProviderID == "" && in.MachineUID == req.Machine.UID
	}) != nil
}

// listing returns the response to a list request. Depending on the semantics, the list lacks instances or contains
// deleted instances. asked reports whether an instance is requested.
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
		in.isReported = true
		described := in.describe()
		p.fail(in, described)
		p.skew(described)
		out = append(out, *described)
	}
	return out
}

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

func (c *Cloud) madeInAll() (n int) {
	for made := range maps.Values(c.createdCount) {
		n += made
	}
	return n
}
