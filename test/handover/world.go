package handover

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"machinist.dev/machinist/internal/platform/sharding"
)

const (
	// replicas of each shard: one leads, one waits.
	replicas = 2
	// namespaces are enough for each of mostShards to have some.
	namespaces = 24
	mostShards = 5
	// mostNested bounds how many requests are under way at once, each in the middle of another.
	mostNested = 3
	// troubleTime is how long things go wrong in a run, and settleTime how long after that all may take to be as it
	// should: what is frozen goes on, late writes arrive, and the two leases run out one after the other.
	troubleTime = 4 * time.Minute
	settleTime  = 2*leaseDuration + 60*time.Second
	// takeover is how long the machines of a killed process may be without an owner: until its lease has run out for
	// whoever saw its last renewal one try later, and two tries more.
	takeover = leaseDuration + 3*(retryPeriod+retryPeriod/5)
)

// World is a run.
type World struct {
	random *rand.Rand
	now    time.Time
	api    *api
	slots  []*slot
	names  []string
	lives  int
	// nested is how many requests are under way, one in the middle of the other.
	nested int
	// calm says that nothing goes wrong any more.
	calm bool
	// cutUntil is when the API server answers again.
	cutUntil time.Time

	led       map[string]string // the last leader of each lease
	handovers int
	broken    error
	story     func(string)
}

// slot is where a process runs, and is started again.
type slot struct {
	shard   sharding.Shard
	replica int
	process *process
	// startAt is when the next process begins, stopAt when the slot is given up, because the number of shards changed.
	startAt, stopAt time.Time
}

// Run makes one run, and returns how often a shard got another owner. The error is a rule that was broken. story may be
// nil.
func Run(seed uint64, story func(string)) (handovers int, err error) {
	w := &World{
		random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1_800_000_000, 0), story: story,
		api: &api{leases: map[string]*coordinationv1.Lease{}, taken: map[string]bool{}}, led: map[string]string{},
	}
	for i := range namespaces {
		w.names = append(w.names, fmt.Sprintf("team-%c", 'a'+rune(i)))
	}
	w.deploy(1 + w.random.IntN(mostShards))
	w.until(w.now.Add(settleTime/2), nil)
	for end := w.now.Add(troubleTime); w.now.Before(end) && w.broken == nil; {
		w.trouble()
		w.until(w.now.Add(w.upTo(16*time.Second)), nil)
	}
	w.settle()
	w.killAndWait()
	return w.handovers, w.broken
}

// settle ends what goes wrong, and waits for each namespace to have an owner.
func (w *World) settle() {
	w.calm, w.cutUntil = true, w.now
	for _, s := range w.slots {
		if s.process != nil {
			s.process.cutUntil = w.now
		}
	}
	w.until(w.now.Add(settleTime), nil)
	if orphan := w.withoutOwner(); orphan != "" {
		w.fail("nobody serves %s, %s after the last trouble", orphan, settleTime)
	}
}

// killAndWait kills one leader, with nothing else going wrong.
func (w *World) killAndWait() {
	leaders := w.open()
	if w.broken != nil || len(leaders) == 0 {
		return
	}
	killed := leaders[w.random.IntN(len(leaders))]
	w.end(killed, "killed while all is well")
	w.until(w.now.Add(takeover), func() {
		for _, name := range w.names {
			if !killed.shard.Owns(name) && w.ownersOf(name) == 0 {
				w.fail("%s is without an owner, and it was %s that was killed", name, killed.name)
			}
		}
	})
	if orphan := w.withoutOwner(); orphan != "" {
		w.fail("nobody serves %s, %s after %s was killed", orphan, takeover, killed.name)
	}
}

// deploy asks for a number of shards. What there was is stopped one by one, while the new processes run already.
func (w *World) deploy(shards int) {
	w.logf("%d shards are asked for", shards)
	for _, s := range w.slots {
		if s.stopAt.IsZero() {
			s.stopAt = w.now.Add(w.upTo(40 * time.Second))
		}
	}
	for i := range shards {
		for replica := range replicas {
			w.slots = append(w.slots, &slot{shard: sharding.Shard{Index: i, Count: shards}, replica: replica,
				startAt: w.now.Add(w.upTo(restartTime))})
		}
	}
}

// until lets time pass. after is called after each step; it may be nil.
func (w *World) until(end time.Time, after func()) {
	for w.broken == nil {
		at, next := w.next()
		if at.After(end) {
			break
		}
		w.now = at
		next()
		w.check()
		if after != nil {
			after()
		}
	}
	if w.now.Before(end) {
		w.now = end
	}
	w.check()
}

// next returns what happens next, and when.
func (w *World) next() (at time.Time, do func()) {
	at = w.now.Add(time.Hour)
	consider := func(t time.Time, f func()) {
		if t.Before(w.now) {
			t = w.now
		}
		if t.Before(at) {
			at, do = t, f
		}
	}
	for _, l := range w.api.late {
		consider(l.at, func() { w.api.arrive(w.now) })
	}
	for _, s := range w.slots {
		p := s.process
		busy := p != nil && p.inside
		switch {
		case !s.stopAt.IsZero() && !busy && !s.stopAt.After(w.now):
			consider(s.stopAt, func() { w.giveUp(s) })
		case p == nil:
			consider(s.startAt, func() { s.process = newProcess(w, s) })
		case !busy:
			t := p.next
			if p.frozenUntil.After(t) {
				t = p.frozenUntil
			}
			consider(t, p.step)
		}
	}
	return at, do
}

// giveUp ends a slot for good, mostly in order.
func (w *World) giveUp(s *slot) {
	if p := s.process; p != nil {
		if w.random.IntN(3) > 0 && !p.frozenUntil.After(w.now) {
			w.logf("%s is stopped", p.name)
			p.release()
		}
		w.end(p, "its slot is given up")
	}
	w.slots = slices.DeleteFunc(w.slots, func(o *slot) bool { return o == s })
}

// end is the death of a process. Its slot starts another one.
func (w *World) end(p *process, why string) {
	if p.dead {
		return
	}
	w.logf("%s ends: %s", p.name, why)
	p.dead = true
	p.slot.process, p.slot.startAt = nil, w.now.Add(w.upTo(restartTime))
}

// elected notes that a process got its lease.
func (w *World) elected(p *process) {
	lease := p.shard.LeaseName("") + p.shard.Group()
	if before, known := w.led[lease]; known && before != p.name {
		w.handovers++
	}
	w.led[lease] = p.name
	w.logf("%s leads", p.name)
}

// open returns the processes whose fence is open.
func (w *World) open() (all []*process) {
	for _, s := range w.slots {
		if s.process != nil && s.process.fence.Check() == nil {
			all = append(all, s.process)
		}
	}
	return all
}

// check is the rule that no namespace has two owners.
func (w *World) check() {
	open := w.open()
	for _, name := range w.names {
		var owner *process
		for _, p := range open {
			switch {
			case !p.owns(name):
			case owner != nil:
				w.fail("%s has two owners: %s and %s", name, owner.name, p.name)
			default:
				owner = p
			}
		}
	}
}

func (w *World) ownersOf(name string) (n int) {
	for _, p := range w.open() {
		if p.owns(name) {
			n++
		}
	}
	return n
}

// withoutOwner returns a namespace that nobody serves.
func (w *World) withoutOwner() string {
	for _, name := range w.names {
		if w.ownersOf(name) == 0 {
			return name
		}
	}
	return ""
}

func (w *World) fail(format string, args ...any) {
	if w.broken == nil {
		w.broken = fmt.Errorf("shards: "+format, args...)
		w.logf("%v", w.broken)
	}
}

func (w *World) logf(format string, args ...any) {
	if w.story != nil {
		w.story(fmt.Sprintf("%7.3f %s", w.now.Sub(time.Unix(1_800_000_000, 0)).Seconds(), fmt.Sprintf(format, args...)))
	}
}

func isMissing(err error) bool { return apierrors.IsNotFound(err) }
