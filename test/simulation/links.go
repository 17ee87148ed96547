package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	clocks "k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/invariants"
)

type link struct {
	// lostAt is the time when the connection was lost. If the connection works, lostAt is zero. If forAll is true,
	// the API server is unreachable for all clients.
	lostAt time.Time
	forAll bool
	// refuses is true while the API server answers, but rejects the credentials of the processes.
	refuses bool
	step    int
	// restoredAt is the end of the last outage that was long enough for all processes to notice.
	restoredAt time.Time
}

// The indexes of the links.
const (
	toControl = iota
	toTarget
)

const (
	// noticedAfter is the longest time that the processes take to notice an outage.
	noticedAfter = 70 * time.Second
	// leaseLostAfter is how long a process continues without renewing its Lease.
	leaseLostAfter = 10 * time.Second
)

func (l link) down() bool { return !l.lostAt.IsZero() }

func (w *World) linkTo(server *apiserver.Server) *link {
	if server == w.target {
		return &w.safety.links[toTarget]
	}
	return &w.safety.links[toControl]
}

func outage(to int, forAll bool) Action {
	return Action{Name: fmt.Sprintf("%s becomes unreachable, for all clients: %t",
		[...]string{"the control cluster", "the target cluster"}[to], forAll),
		Do: func(_ context.Context, w *World, _ client.Client) error {
			for _, p := range w.processes {
				for i := range p.probes {
					// The last successful probe was at a random time within the last period.
					p.probes[i].at = w.clock.at
				}
				p.probeDue()
				for i := range p.probes {
					p.probes[i].at = w.clock.at.Add(time.Duration(w.random.IntN(60_000)) * time.Millisecond)
				}
			}
			w.safety.links[to].lostAt, w.safety.links[to].forAll = w.clock.at, forAll
			return nil
		}}
}

func endOutage(to int) Action {
	return Action{Name: "the cluster is reachable again", Do: func(_ context.Context, w *World, _ client.Client) error {
		l := &w.safety.links[to]
		if l.down() && w.clock.Since(l.lostAt) >= noticedAfter {
			l.restoredAt = w.clock.at
			w.safety.pastOutages[to] = append(slices.Clip(w.safety.pastOutages[to]),
				invariants.Outage{From: l.lostAt, To: w.clock.at})
		}
		l.lostAt, l.refuses = time.Time{}, false
		return nil
	}}
}

func (w *World) outageChoices() (out []choice) {
	control := w.safety.links[toControl]
	for _, p := range w.processes {
		switch {
		case p.dead:
		case control.down() && w.clock.Since(control.lostAt) >= leaseLostAfter:
			out = append(out, choice{p.name + " loses its lease", func() error { p.die(); return nil }})
		case !w.safety.links[toTarget].down() && !p.target.synced():
			out = append(out, choice{p.name + " lists the target cluster", p.fillTarget})
		}
	}
	return out
}

func (w *World) nextLeaseLoss() (at time.Time, any bool) {
	if control := w.safety.links[toControl]; control.down() {
		at = control.lostAt.Add(leaseLostAfter)
		return at, at.After(w.clock.at)
	}
	return time.Time{}, false
}

func (p *Process) fillTarget() error {
	for _, v := range p.target.views {
		if err := v.fill(0); err != nil {
			return err
		}
		v.unfilled = false
		for _, s := range v.subscriptions {
			for _, o := range v.objects {
				s.events = append(s.events, event.CreateEvent{Object: o, IsInInitialList: true})
			}
		}
	}
	return nil
}

func (l *link) unreachable() error {
	if l != nil && l.down() && l.refuses {
		return errCredentialsRefused
	}
	if l != nil && l.down() {
		return errors.New("the API server does not answer: i/o timeout")
	}
	return nil
}

func (c *cache) synced() bool {
	for _, v := range c.views {
		if v.unfilled {
			return false
		}
	}
	return true
}

func (w *World) reach(server *apiserver.Server, actor string) client.Client {
	if w.safety.optionalReconcilers == 0 {
		return server.Client(actor)
	}
	return &connection{server.Client(actor), w.linkTo(server)}
}

type connection struct {
	client.Client
	link *link
}

// Get implements client.Client.
func (c *connection) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.Get(ctx, key, o, opts...)
}

// List implements client.Client.
func (c *connection) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.List(ctx, list, opts...)
}

// Create implements client.Client.
func (c *connection) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.Create(ctx, o, opts...)
}

// Update implements client.Client.
func (c *connection) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.Update(ctx, o, opts...)
}

// Patch implements client.Client.
func (c *connection) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.Patch(ctx, o, patch, opts...)
}

// Delete implements client.Client.
func (c *connection) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := c.link.unreachable(); err != nil {
		return err
	}
	return c.Client.Delete(ctx, o, opts...)
}

// SubResource implements client.Client.
func (c *connection) SubResource(name string) client.SubResourceClient {
	return &subConnection{c.Client.SubResource(name), c.link}
}

type subConnection struct {
	client.SubResourceClient
	link *link
}

// Get implements client.SubResourceClient.
func (s *subConnection) Get(ctx context.Context, o, sub client.Object, opts ...client.SubResourceGetOption) error {
	if err := s.link.unreachable(); err != nil {
		return err
	}
	return s.SubResourceClient.Get(ctx, o, sub, opts...)
}

// Create implements client.SubResourceClient.
func (s *subConnection) Create(ctx context.Context, o, sub client.Object,
	opts ...client.SubResourceCreateOption) error {
	if err := s.link.unreachable(); err != nil {
		return err
	}
	return s.SubResourceClient.Create(ctx, o, sub, opts...)
}

// Update implements client.SubResourceClient.
func (s *subConnection) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if err := s.link.unreachable(); err != nil {
		return err
	}
	return s.SubResourceClient.Update(ctx, o, opts...)
}

// Patch implements client.SubResourceClient.
func (s *subConnection) Patch(ctx context.Context, o client.Object, patch client.Patch,
	opts ...client.SubResourcePatchOption) error {
	if err := s.link.unreachable(); err != nil {
		return err
	}
	return s.SubResourceClient.Patch(ctx, o, patch, opts...)
}

// Apply implements client.SubResourceClient.
func (s *subConnection) Apply(ctx context.Context, o runtime.ApplyConfiguration,
	opts ...client.SubResourceApplyOption) error {
	if err := s.link.unreachable(); err != nil {
		return err
	}
	return s.SubResourceClient.Apply(ctx, o, opts...)
}

// Apply implements client.SubResourceClient.
func (s *liveSubResource) Apply(ctx context.Context, o runtime.ApplyConfiguration,
	opts ...client.SubResourceApplyOption) error {
	e := Effect{Verb: "apply " + s.name, Kind: "?"}
	if named, ok := o.(client.Object); ok {
		e.Kind, e.Name = named.GetObjectKind().GroupVersionKind().Kind, client.ObjectKeyFromObject(named).String()
	}
	return s.parent.process.do(e, func(bool) error { return s.SubResourceClient.Apply(ctx, o, opts...) })
}

// ticking adds the methods for timers to a passive clock, for code that requires them. No code in the simulation sets a
// timer.
type ticking struct {
	clocks.WithTicker
	clocks.PassiveClock
}

// Now implements clock.PassiveClock.
func (t ticking) Now() time.Time { return t.PassiveClock.Now() }

// Since implements clock.PassiveClock.
func (t ticking) Since(at time.Time) time.Duration { return t.PassiveClock.Since(at) }
