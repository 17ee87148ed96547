package handover

import (
	"bytes"
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/internal/platform/process/fence"
	"machinist.dev/machinist/internal/platform/sharding"
)

// The times of leases are the defaults of the processes.
const (
	leaseDuration  = 15 * time.Second
	renewDeadline  = 10 * time.Second
	retryPeriod    = time.Second
	requestTimeout = renewDeadline / 3
	// restartTime is how long a process takes to be there again, at most.
	restartTime = 3 * time.Second
)

// process is one life of a process that serves a shard, or everything.
type process struct {
	world *World
	slot  *slot
	shard sharding.Shard
	name  string
	fence *fence.Fence
	lock  *fence.Lock
	dead  bool
	// next is when it acts again, frozenUntil when it goes on after it was frozen, cutUntil when it reaches the API
	// server again, inside says that it waits for a request.
	next, frozenUntil, cutUntil time.Time
	inside                      bool

	// What its elector knows, as that of client-go does.
	observed    *resourcelock.LeaderElectionRecord
	observedRaw []byte
	observedAt  time.Time
	renewedAt   time.Time
	leads       bool
}

func newProcess(w *World, s *slot) *process {
	w.lives++
	p := &process{world: w, slot: s, shard: s.shard, name: fmt.Sprintf("%s/%d#%d", s.shard, s.replica, w.lives),
		next: w.now}
	p.fence = fence.New(renewDeadline, worldClock{world: w})
	lease := func(name, holder string) *fence.Lease {
		return &fence.Lease{Client: connection{process: p}, Namespace: "system", Name: name, Holder: holder,
			Duration: leaseDuration, First: func(context.Context) (bool, error) { return w.api.first(name), nil }}
	}
	const base = "manager"
	own := lease(s.shard.LeaseName(base), p.name)
	p.lock = p.fence.Guard(own)
	if !s.shard.All() {
		p.lock = p.fence.Guard(fence.NewJoint(own, lease(base, s.shard.Group())))
	}
	return p
}

// owns reports whether the process may act on a namespace now.
func (p *process) owns(namespace string) bool {
	return !p.dead && p.fence.Check() == nil && p.shard.Owns(namespace)
}

// step is one try of the elector to get or renew the lease.
func (p *process) step() {
	w := p.world
	p.inside = true
	won := p.acquireOrRenew()
	p.inside = false
	if p.dead {
		return
	}
	// Between two tries the elector waits its period and up to a fifth more.
	p.next = w.now.Add(retryPeriod + w.upTo(retryPeriod/5))
	switch {
	case won:
		p.renewedAt = w.now
		if !p.leads {
			p.leads = true
			w.elected(p)
		}
	case p.leads && w.now.Sub(p.renewedAt) >= renewDeadline:
		w.end(p, "its elector gave up")
		return
	}
	select {
	case <-p.fence.Lost():
		w.end(p, "its lease is lost")
	default:
	}
}

// acquireOrRenew is what the elector of client-go does at each try.
func (p *process) acquireOrRenew() bool {
	ctx, now := context.Background(), p.world.now
	record := resourcelock.LeaderElectionRecord{
		HolderIdentity: p.name, LeaseDurationSeconds: int(leaseDuration / time.Second),
		RenewTime: metav1.NewTime(now), AcquireTime: metav1.NewTime(now),
	}
	valid := func() bool { return p.observedAt.Add(leaseDuration).After(now) }
	ours := func() bool { return p.observed != nil && p.observed.HolderIdentity == p.name }
	if ours() && valid() {
		record.AcquireTime, record.LeaderTransitions = p.observed.AcquireTime, p.observed.LeaderTransitions
		if p.lock.Update(ctx, record) == nil {
			p.observe(&record)
			return true
		}
	}
	found, raw, err := p.lock.Get(ctx)
	if isMissing(err) {
		if p.lock.Create(ctx, record) != nil {
			return false
		}
		p.observe(&record)
		return true
	}
	if err != nil {
		return false
	}
	if !bytes.Equal(raw, p.observedRaw) {
		p.observe(found)
		p.observedRaw = raw
	}
	if found.HolderIdentity != "" && valid() && !ours() {
		return false
	}
	if ours() {
		record.AcquireTime, record.LeaderTransitions = found.AcquireTime, found.LeaderTransitions
	} else {
		record.LeaderTransitions = found.LeaderTransitions + 1
	}
	if p.lock.Update(ctx, record) != nil {
		return false
	}
	p.observe(&record)
	return true
}

func (p *process) observe(r *resourcelock.LeaderElectionRecord) {
	p.observed, p.observedAt = r, p.world.now
}

// release is the orderly end.
func (p *process) release() {
	p.inside = true
	_ = p.lock.Release(context.Background())
	p.inside = false
}

// worldClock is the clock of a host. Its timers never fire: what a fence does by itself, it does when it is asked.
type worldClock struct {
	clock.WithTickerAndDelayedExecution
	world *World
}

// Now implements clock.PassiveClock.
func (c worldClock) Now() time.Time { return c.world.now }

// Since implements clock.PassiveClock.
func (c worldClock) Since(t time.Time) time.Duration { return c.world.now.Sub(t) }

// AfterFunc implements clock.WithDelayedExecution.
func (c worldClock) AfterFunc(time.Duration, func()) clock.Timer { return silent{} }

type silent struct{ clock.Timer }

// Stop implements clock.Timer.
func (silent) Stop() bool { return true }
