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

// These durations are the defaults of the flags of Machinist.
const (
	leaseDuration  = 15 * time.Second
	renewDeadline  = 10 * time.Second
	retryPeriod    = time.Second
	requestTimeout = renewDeadline / 3
	restartTime    = 3 * time.Second
)

type process struct {
	world *World
	slot  *slot
	shard sharding.Shard
	name  string
	fence *fence.Fence
	lock  *fence.Lock
	dead  bool
	// next is the time of the process's next action. frozenUntil is the end of its freeze, and cutUntil is the end of
	// its network failure. inRequest is true while the process waits for a response.
	next, frozenUntil, cutUntil time.Time
	inRequest                   bool

	// These fields are the state of the elector, as in client-go.
	observed    *resourcelock.LeaderElectionRecord
	observedRaw []byte
	observedAt  time.Time
	renewedAt   time.Time
	leads       bool
}

func newProcess(w *World, s *slot) *process {
	w.started++
	p := &process{world: w, slot: s, shard: s.shard, name: fmt.Sprintf("%s/%d#%d", s.shard, s.replica, w.started),
		next: w.now}
	p.fence = fence.New(renewDeadline, worldClock{world: w})
	lease := func(name, holder string) *fence.Lease {
		return &fence.Lease{Client: connection{process: p}, Namespace: "system", Name: name, Holder: holder,
			Duration: leaseDuration, IsFirst: func(context.Context) (bool, error) { return w.api.first(name), nil }}
	}
	const base = "manager"
	own := lease(s.shard.LeaseName(base), p.name)
	p.lock = p.fence.Guard(own)
	if !s.shard.IsUndivided() {
		p.lock = p.fence.Guard(fence.NewJoint(own, lease(base, s.shard.Group())))
	}
	return p
}

func (p *process) owns(namespace string) bool {
	return !p.dead && p.fence.Check() == nil && p.shard.Owns(namespace)
}

func (p *process) step() {
	w := p.world
	p.inRequest = true
	won := p.acquireOrRenew()
	p.inRequest = false
	if p.dead {
		return
	}
	// The elector adds a random delay of up to one fifth to its retry period.
	p.next = w.now.Add(retryPeriod + w.randomUpTo(retryPeriod/5))
	switch {
	case won:
		p.renewedAt = w.now
		if !p.leads {
			p.leads = true
			w.elected(p)
		}
	case p.leads && w.now.Sub(p.renewedAt) >= renewDeadline:
		w.end(p, "its elector could not renew the Lease in time")
		return
	}
	select {
	case <-p.fence.LeaseLost():
		w.end(p, "its Lease is lost")
	default:
	}
}

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

func (p *process) release() {
	p.inRequest = true
	_ = p.lock.Release(context.Background())
	p.inRequest = false
}

// worldClock is the clock of a host. Timers of this clock never fire. A fence does not need timers, because Check
// compares times.
type worldClock struct {
	clock.WithTickerAndDelayedExecution
	world *World
}

// Now implements clock.PassiveClock.
func (c worldClock) Now() time.Time { return c.world.now }

// Since implements clock.PassiveClock.
func (c worldClock) Since(t time.Time) time.Duration { return c.world.now.Sub(t) }

// AfterFunc implements clock.WithDelayedExecution.
func (c worldClock) AfterFunc(time.Duration, func()) clock.Timer { return idleTimer{} }

type idleTimer struct{ clock.Timer }

// Stop implements clock.Timer.
func (idleTimer) Stop() bool { return true }
