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
	// replicas is the number of processes for each shard: one leads, and one waits.
	replicas       = 2
	namespaceCount = 24
	maxShards      = 5
	// maxNesting limits the number of concurrent requests.
	maxNesting = 3
	// faultTime is the duration of the faults in a run. Within recoveryTime after that, all namespaces must get an
	// owner. Frozen processes resume, late writes are executed, and two Leases expire in succession.
	faultTime    = 4 * time.Minute
	recoveryTime = 2*leaseDuration + 60*time.Second
	// takeoverTime limits how long the namespaces of a killed process have no owner. Another process may observe the
	// last renewal only in the next attempt to acquire the Lease. This process needs up to two more attempts after
	// the Lease has expired.
	takeoverTime = leaseDuration + 3*(retryPeriod+retryPeriod/5)
)

// World is the state of one run.
type World struct {
	random     *rand.Rand
	now        time.Time
	api        *api
	slots      []*slot
	namespaces []string
	started    int
	nesting    int
	faultsOver bool
	cutUntil   time.Time

	lastLeader map[string]string // The keys are names of Leases.
	handovers  int
	violation  error
	log        func(string)
}

// A slot runs one process at a time. When the process ends, the slot starts another process.
type slot struct {
	shard           sharding.Shard
	replica         int
	process         *process
	startAt, stopAt time.Time
}

// Run simulates one run, and returns how often a shard got another owner, and an error if a rule was violated. log
// receives a line for each event and may be nil.
func Run(seed uint64, log func(string)) (handovers int, err error) {
	w := &World{
		random: rand.New(rand.NewPCG(seed, 0)), now: time.Unix(1_800_000_000, 0), log: log,
		api:        &api{leases: map[string]*coordinationv1.Lease{}, everHeld: map[string]bool{}},
		lastLeader: map[string]string{},
	}
	for i := range namespaceCount {
		w.namespaces = append(w.namespaces, fmt.Sprintf("team-%c", 'a'+rune(i)))
	}
	w.deploy(1 + w.random.IntN(maxShards))
	w.advance(w.now.Add(recoveryTime/2), nil)
	for end := w.now.Add(faultTime); w.now.Before(end) && w.violation == nil; {
		w.injectFault()
		w.advance(w.now.Add(w.randomUpTo(16*time.Second)), nil)
	}
	w.endFaults()
	w.killLeader()
	return w.handovers, w.violation
}

func (w *World) endFaults() {
	w.faultsOver, w.cutUntil = true, w.now
	for _, s := range w.slots {
		if s.process != nil {
			s.process.cutUntil = w.now
		}
	}
	w.advance(w.now.Add(recoveryTime), nil)
	if name := w.unownedNamespace(); name != "" {
		w.fail("namespace %s has no owner %s after the last fault", name, recoveryTime)
	}
}

// killLeader kills one leader. Only its namespaces may lose their owner.
func (w *World) killLeader() {
	leaders := w.leaders()
	if w.violation != nil || len(leaders) == 0 {
		return
	}
	killed := leaders[w.random.IntN(len(leaders))]
	w.end(killed, "killed after the last fault")
	w.advance(w.now.Add(takeoverTime), func() {
		for _, name := range w.namespaces {
			if !killed.shard.Owns(name) && w.ownersOf(name) == 0 {
				w.fail("namespace %s lost its owner although another process was killed: %s", name, killed.name)
			}
		}
	})
	if name := w.unownedNamespace(); name != "" {
		w.fail("namespace %s has no owner %s after %s was killed", name, takeoverTime, killed.name)
	}
}

// deploy replaces all processes by processes with the given number of shards. The old processes stop one after
// another, while the new processes already run.
func (w *World) deploy(shards int) {
	w.logf("the number of shards is set to %d", shards)
	for _, s := range w.slots {
		if s.stopAt.IsZero() {
			s.stopAt = w.now.Add(w.randomUpTo(40 * time.Second))
		}
	}
	for i := range shards {
		for replica := range replicas {
			w.slots = append(w.slots, &slot{shard: sharding.Shard{Index: i, Count: shards}, replica: replica,
				startAt: w.now.Add(w.randomUpTo(restartTime))})
		}
	}
}

func (w *World) advance(end time.Time, after func()) {
	for w.violation == nil {
		at, next := w.next()
		if at.After(end) {
			break
		}
		w.now = at
		next()
		w.checkOwners()
		if after != nil {
			after()
		}
	}
	if w.now.Before(end) {
		w.now = end
	}
	w.checkOwners()
}

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
	for _, l := range w.api.lateWrites {
		consider(l.at, func() { w.api.executeLateWrites(w.now) })
	}
	for _, s := range w.slots {
		p := s.process
		busy := p != nil && p.inRequest
		switch {
		case !s.stopAt.IsZero() && !busy && !s.stopAt.After(w.now):
			consider(s.stopAt, func() { w.removeSlot(s) })
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

func (w *World) removeSlot(s *slot) {
	if p := s.process; p != nil {
		if w.random.IntN(3) > 0 && !p.frozenUntil.After(w.now) {
			w.logf("%s is stopped", p.name)
			p.release()
		}
		w.end(p, "its slot is removed")
	}
	w.slots = slices.DeleteFunc(w.slots, func(o *slot) bool { return o == s })
}

func (w *World) end(p *process, why string) {
	if p.dead {
		return
	}
	w.logf("%s ends: %s", p.name, why)
	p.dead = true
	p.slot.process, p.slot.startAt = nil, w.now.Add(w.randomUpTo(restartTime))
}

func (w *World) elected(p *process) {
	lease := p.shard.LeaseName("") + p.shard.Group()
	if before, known := w.lastLeader[lease]; known && before != p.name {
		w.handovers++
	}
	w.lastLeader[lease] = p.name
	w.logf("%s leads", p.name)
}

func (w *World) leaders() (all []*process) {
	for _, s := range w.slots {
		if s.process != nil && s.process.fence.Check() == nil {
			all = append(all, s.process)
		}
	}
	return all
}

func (w *World) checkOwners() {
	leaders := w.leaders()
	for _, name := range w.namespaces {
		var owner *process
		for _, p := range leaders {
			switch {
			case !p.owns(name):
			case owner != nil:
				w.fail("namespace %s has two owners: %s and %s", name, owner.name, p.name)
			default:
				owner = p
			}
		}
	}
}

func (w *World) ownersOf(name string) (n int) {
	for _, p := range w.leaders() {
		if p.owns(name) {
			n++
		}
	}
	return n
}

func (w *World) unownedNamespace() string {
	for _, name := range w.namespaces {
		if w.ownersOf(name) == 0 {
			return name
		}
	}
	return ""
}

func (w *World) fail(format string, args ...any) {
	if w.violation == nil {
		w.violation = fmt.Errorf("shards: "+format, args...)
		w.logf("%v", w.violation)
	}
}

func (w *World) logf(format string, args ...any) {
	if w.log != nil {
		w.log(fmt.Sprintf("%7.3f %s", w.now.Sub(time.Unix(1_800_000_000, 0)).Seconds(), fmt.Sprintf(format, args...)))
	}
}

func isMissing(err error) bool { return apierrors.IsNotFound(err) }
