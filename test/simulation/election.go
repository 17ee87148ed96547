package simulation

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocks "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/platform/process/fence"
)

// election simulates the election of a leader among processes with the same name. The simulation uses the production
// code for locks and fences, and imitates the elector of client-go. An election begins when a Lease is changed, and
// ends after the same process has led for a while. In most runs, no election is simulated, and a process leads until
// another one replaces it.
type election struct {
	world *World
	// name is the common name of the processes. If shared is true, the processes belong to a group and have two Leases.
	name              string
	shared            bool
	electors          []*elector
	quiet, leaderless time.Time
	made              int
}

type elector struct {
	*election
	identity string
	fence    *fence.Fence
	lock     *fence.Lock
	leads    bool
	due      time.Time
	// renewed is when this candidate last acquired or renewed its Lease.
	renewed time.Time

	record resourcelock.LeaderElectionRecord
	raw    []byte
	seenAt time.Time
}

const (
	// retryPeriod equals that of process.Config.
	retryPeriod = time.Second
	// undisturbedLead is the time that the same process must lead until the election ends. longestElection limits the
	// duration of an election.
	undisturbedLead, longestElection = leaseDuration + 5*time.Second, fence.LongestDuration + 2*leaseDuration
	// leaseGroup is the group of the providers.
	leaseGroup = "2-shards"
)

// elect begins an election. The given process leads and has just renewed its Lease. Another process waits.
func (w *World) elect(p *Process) error {
	e := &election{world: w, name: p.name, shared: p.name == Provider, quiet: w.clock.at, leaderless: w.clock.at}
	leader, waiting := e.candidate(), e.candidate()
	if !leader.tryAcquireOrRenew() {
		return fmt.Errorf("the first %s is not elected", p.name)
	}
	if waiting.tryAcquireOrRenew() {
		return fmt.Errorf("two %ss are elected", p.name)
	}
	leader.leads, p.elector, w.election = true, leader, e
	return nil
}

func (e *election) candidate() *elector {
	w := e.world
	c := &elector{election: e, identity: identityOf(e.name, e.made),
		fence: fence.New(renewDeadline, fenceClock{clock: w.clock})}
	// The API server stores the Leases only when the first process has acquired them.
	first := e.made == 0
	e.made++
	lease := func(name, holder string) *fence.Lease {
		return &fence.Lease{Client: leaseClient{world: w, actor: c.identity}, Namespace: leases, Name: name, Holder: holder,
			Duration: leaseDuration, Labels: leaseLabels(e.name),
			IsFirst: func(context.Context) (bool, error) { return first, nil }}
	}
	own := lease(leaseOf(e.name), c.identity)
	c.lock = c.fence.Guard(own)
	if e.shared {
		c.lock = c.fence.Guard(fence.NewJoint(own, lease(commonLeaseOf(e.name), leaseGroup)))
	}
	c.due = w.clock.at.Add(time.Duration(w.random.Int64N(int64(retryPeriod))))
	e.electors = append(e.electors, c)
	return c
}

func (c *elector) isLeader() bool { return c.record.HolderIdentity == c.identity }

// mayAct reports whether a leader may still act. The deadline counts from the last renewal (rule
// lease-counts-from-send). In the simulation, a renewal takes no time.
func (c *elector) mayAct() bool { return c.leads && c.world.clock.Since(c.renewed) < renewDeadline }

func (c *elector) valid(now time.Time) bool {
	return c.seenAt.Add(time.Duration(c.record.LeaseDurationSeconds) * time.Second).After(now)
}

func (c *elector) renew(r resourcelock.LeaderElectionRecord) bool {
	c.renewed = c.world.clock.at
	return c.observe(r)
}

func (c *elector) observe(r resourcelock.LeaderElectionRecord) bool {
	c.record, c.seenAt = r, c.world.clock.at
	return true
}

// tryAcquireOrRenew imitates LeaderElector.tryAcquireOrRenew of client-go.
func (c *elector) tryAcquireOrRenew() bool {
	now, ctx := c.world.clock.at, context.Background()
	record := resourcelock.LeaderElectionRecord{HolderIdentity: c.identity,
		LeaseDurationSeconds: int(leaseDuration / time.Second), RenewTime: metav1.NewTime(now),
		AcquireTime: metav1.NewTime(now)}
	if c.isLeader() && c.valid(now) {
		record.AcquireTime, record.LeaderTransitions = c.record.AcquireTime, c.record.LeaderTransitions
		if c.lock.Update(ctx, record) == nil {
			return c.renew(record)
		}
	}
	old, raw, err := c.lock.Get(ctx)
	if apierrors.IsNotFound(err) {
		return c.lock.Create(ctx, record) == nil && c.renew(record)
	}
	if err != nil {
		return false
	}
	if !bytes.Equal(c.raw, raw) {
		c.observe(*old)
		c.raw = raw
	}
	switch {
	case c.isLeader():
		record.AcquireTime, record.LeaderTransitions = old.AcquireTime, old.LeaderTransitions
	case old.HolderIdentity != "" && c.valid(now):
		return false
	default:
		record.LeaderTransitions = old.LeaderTransitions + 1
	}
	return c.lock.Update(ctx, record) == nil && c.renew(record)
}

func (e *election) possible() (out []choice) {
	if e == nil {
		return nil
	}
	for _, c := range e.electors {
		if c.leads && (e.process() == nil || c.fence.Check() != nil) {
			out = append(out, choice{c.identity + " ends", func() error { c.end(); return nil }})
		} else if !e.world.clock.at.Before(c.due) {
			out = append(out, choice{c.identity + " tries to lead", c.turn})
		}
	}
	return out
}

func (e *election) process() *Process {
	for _, p := range e.world.processes {
		if p.name == e.name && !p.isFormer && !p.dead {
			return p
		}
	}
	return nil
}

// end stops the process of a leader whose fence has closed, or cleans up after a process that has ended. The host then
// starts another process.
func (c *elector) end() {
	w := c.world
	w.logf("%s ends: %v", c.identity, c.fence.Check())
	if p := c.process(); p != nil && p.elector == c {
		p.die()
	}
	c.electors = slices.DeleteFunc(c.electors, func(o *elector) bool { return o == c })
	c.candidate()
	c.quiet, w.disturbed, w.stepsAtFault = w.clock.at, w.clock.at, w.steps
}

func (c *elector) turn() error {
	w := c.world
	now := w.clock.at
	c.due = now.Add(retryPeriod)
	if !c.leads {
		c.due = c.due.Add(time.Duration(w.random.Int64N(int64(retryPeriod))))
	}
	ok := c.tryAcquireOrRenew()
	if w.linkTo(w.control).down() || slices.ContainsFunc(c.electors, func(o *elector) bool { return o.leads }) {
		c.leaderless = now
	}
	switch {
	case ok && !c.leads:
		return c.elected()
	case now.Sub(c.leaderless) > longestElection:
		w.oracle.breach("election", "the %ss have no leader for %s", c.name, longestElection)
	case c.leads && now.Sub(c.quiet) > undisturbedLead:
		w.logf("%s leads undisturbed", c.identity)
		if p := c.process(); p != nil {
			p.elector = nil
		}
		w.election = nil
	}
	return nil
}

func (c *elector) elected() error {
	w := c.world
	w.logf("%s is elected", c.identity)
	for _, o := range c.electors {
		if o != c && o.mayAct() && c.process() != nil {
			w.oracle.breach("leaders", "%s is elected while %s may act", c.identity, o.identity)
		}
	}
	c.leads, c.quiet, c.leaderless = true, w.clock.at, w.clock.at
	for i, p := range w.processes {
		if p.name != c.name || p.isFormer {
			continue
		}
		if !p.dead {
			p.die()
		}
		next, err := w.start(p.name, p.clock.behind, w.lateness(p))
		if err != nil {
			return err
		}
		next.elector = c
		w.processes[i] = next
	}
	w.disturbed, w.stepsAtFault = w.clock.at, w.steps
	return nil
}

// needsElection reports whether processes with this name need an election before they run again. A process that needs
// no election runs again after a restart.
func (e *election) needsElection(name string) bool { return e != nil && e.name == name }

func (e *election) next() (at time.Time, waits bool) {
	if e == nil {
		return at, false
	}
	for _, c := range e.electors {
		if !waits || c.due.Before(at) {
			at, waits = c.due, true
		}
	}
	return at, waits
}

// fenceClock is the world's clock for a fence. Timers of this clock never fire. The fence does not need timers, because
// the simulation checks the fence before each action.
type fenceClock struct {
	clocks.WithTickerAndDelayedExecution
	clock *clock
}

func (c fenceClock) Now() time.Time                             { return c.clock.Now() }
func (c fenceClock) Since(t time.Time) time.Duration            { return c.clock.Since(t) }
func (fenceClock) AfterFunc(time.Duration, func()) clocks.Timer { return noTimer{} }

type noTimer struct{ clocks.Timer }

func (noTimer) Stop() bool { return true }

type leaseClient struct {
	coordinationclient.LeaseInterface
	world *World
	actor string
}

func (c leaseClient) client() (client.Client, error) {
	if c.world.linkTo(c.world.control).down() {
		return nil, errNoAnswer
	}
	return c.world.control.Client(c.actor), nil
}

func (c leaseClient) Get(ctx context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	server, err := c.client()
	if err != nil {
		return nil, err
	}
	out := &coordinationv1.Lease{}
	return out, server.Get(ctx, client.ObjectKey{Namespace: leases, Name: name}, out)
}

func (c leaseClient) Create(ctx context.Context, l *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	server, err := c.client()
	if err != nil {
		return nil, err
	}
	return l, server.Create(ctx, l)
}

func (c leaseClient) Update(ctx context.Context, l *coordinationv1.Lease,
	_ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	server, err := c.client()
	if err != nil {
		return nil, err
	}
	if err := leaseRefused(l); err != nil {
		return nil, err
	}
	return l, server.Update(ctx, l)
}
