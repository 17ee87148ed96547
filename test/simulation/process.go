package simulation

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/health/orphans"
	pages "machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/cloud"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/internal/transfer/migration"
)

// Process is one life of the manager or of a provider, with its reconcilers, caches and queues. A restart creates a new
// Process.
type Process struct {
	world *World
	name  string
	dead  bool
	life  int
	began time.Time
	clock *wallClock

	// isFormer is true if this process is no longer the leader, and a successor has started. A former leader is first
	// suspended. It then runs until the time that the field "until" contains.
	isFormer, suspended bool
	deposedAt, until    time.Time
	elector             *elector
	// denials contains the requests that the process may not send for a while. rewind is the number of recent changes
	// that are missing in the first lists after the next restart.
	denials []denial
	rewind  int

	connections     []*liveClient
	control, target *cache
	controllers     []*controller

	// These reconcilers keep a state in memory. Fields for reconcilers of other processes are nil.
	ledger      *disruption.Ledger
	decided     *freshness.Decisions
	sets        *machineset.Reconciler
	deployments *machinedeployment.Reconciler
	machines    *machine.Reconciler
	classes     *machineclass.Reconciler
	drains      *drain.Controller
	migrations  *migration.Reconciler
	optionalReconcilers
}

type controller struct {
	process *Process
	table   wiring.Controller
	queue   *queue
}

// Names of the processes.
const (
	Manager  = "manager"
	Provider = "provider"
	Migrator = "migrator"
)

// start starts a new life of a process on a host whose clock is behind by the given time. late returns how many changes
// a first list lacks.
func (w *World) start(name string, behind time.Duration, late func() int) (*Process, error) {
	w.lives++
	p := &Process{world: w, name: name, life: w.lives, began: w.clock.at, clock: &wallClock{w.clock, behind}}
	tables, err := p.wire(&Process{})
	if err != nil {
		return nil, err
	}
	for _, v := range p.views() {
		if v.unfilled = w.linkTo(v.server).down(); v.unfilled {
			continue
		}
		if err := v.fill(late()); err != nil {
			return nil, err
		}
	}
	for _, t := range tables {
		if err := p.add(t, newQueue(w.clock.Now)); err != nil {
			return nil, fmt.Errorf("start %s of %s: %w", t.Name, name, err)
		}
	}
	p.queueInitialLists()
	p.probeDue()
	return p, nil
}

func (p *Process) clone(w *World) (*Process, error) {
	if len(p.controllers) == 0 {
		return w.unelected(p.name, &wallClock{w.clock, p.clock.behind}), nil
	}
	f := &Process{
		world: w, name: p.name, life: p.life, began: p.began, dead: p.dead, clock: &wallClock{w.clock, p.clock.behind},
		isFormer: p.isFormer, suspended: p.suspended, until: p.until, denials: slices.Clone(p.denials), rewind: p.rewind,
	}
	tables, err := f.wire(p)
	if err != nil {
		return nil, err
	}
	ours := f.views()
	for i, v := range p.views() {
		ours[i].resume(v)
	}
	for i, t := range tables {
		q := newQueue(w.clock.Now)
		if err := f.add(t, q); err != nil {
			return nil, fmt.Errorf("clone %s of %s: %w", t.Name, p.name, err)
		}
		// The queue already contains the keys that the sources added when the process started.
		*q = *p.controllers[i].queue.clone(w.clock.Now)
	}
	for i, v := range p.views() {
		for j, s := range v.subscriptions {
			ours[i].subscriptions[j].events = slices.Clone(s.events)
		}
	}
	if f.isFormer {
		f.actAsFormer()
	}
	return f, nil
}

// wire creates the controllers of the process. If origin is not nil, wire copies the memory of the controllers of
// origin into the new controllers. A new process has no origin and starts with empty memory.
func (p *Process) wire(origin *Process) ([]wiring.Controller, error) {
	p.control, p.target = newCache(p.world.control, p.world.scheme), newCache(p.world.target, p.world.scheme)
	p.watchReachability(origin)
	switch p.name {
	case Manager:
		return p.manager(origin)
	case Provider:
		return p.provider(origin)
	case Migrator:
		return p.migrator(origin)
	}
	return nil, fmt.Errorf("unknown process %q", p.name)
}

func successor[T any](made, origin *T) *T {
	if origin != nil {
		inherit(made, origin)
	}
	return made
}

func (p *Process) views() []*view {
	return append(p.control.views[:len(p.control.views):len(p.control.views)], p.target.views...)
}

func (p *Process) sees(kind string) (revision int64) {
	for _, v := range p.views() {
		if v.gvk.Kind == kind {
			revision = max(revision, v.seen)
		}
	}
	return revision
}

func (p *Process) cached(kinds []process.Kind, c *cache, cluster wiring.Cluster) error {
	for _, k := range kinds {
		if err := c.add(cluster, k.Object, k.Transform); err != nil {
			return err
		}
	}
	return nil
}

func (p *Process) manager(origin *Process) ([]wiring.Controller, error) {
	ctx := context.Background()
	err := p.cached([]process.Kind{
		{Object: &v1beta1.MachineDeployment{}}, {Object: &v1beta1.MachineSet{}}, {Object: &v1beta1.Machine{}},
		{Object: &v1beta1.MachineClass{}}, {Object: &v1beta1.MachineDisruptionBudget{}},
	}, p.control, wiring.Control)
	if err != nil {
		return nil, err
	}
	control, target := p.world.safety.optionalReconcilers.managerKinds()
	if err := errors.Join(p.cached(control, p.control, wiring.Control),
		p.cached(target, p.target, wiring.Target)); err != nil {
		return nil, err
	}
	for _, register := range []func(context.Context, client.FieldIndexer) error{
		index.RegisterOwned, index.RegisterSets, machineset.RegisterIndexes,
	} {
		if err := register(ctx, p.control); err != nil {
			return nil, err
		}
	}
	machines, err := p.control.viewOf(&v1beta1.Machine{})
	if err != nil {
		return nil, err
	}
	c, live := newCachedClient(p, p.control, Manager), p.live(p.control)
	p.ledger = successor(disruption.New(disruption.Options{Client: c, LiveReader: live, Clock: p.clock,
		CacheVersion: machines.version}), origin.ledger)
	p.decided = successor(&freshness.Decisions{}, origin.decided)
	p.sets = successor(machineset.New(machineset.Options{
		Client: c, LiveReader: live, Recorder: recorder{p}, Clock: p.clock,
		MachineCacheVersion: machines.version, Ledger: p.ledger, Decisions: p.decided,
		StopReason: func() (r machineset.ConditionReason) { r.Reason, r.Message = p.stopReason(); return r },
		ForEach: func(n int, f func(int)) {
			for i := range n {
				f(i)
			}
		},
		NewName: func(set string) string {
			p.world.names++
			return fmt.Sprintf("%s-%05d", set, p.world.names)
		},
	}), origin.sets)
	p.deployments = successor(machinedeployment.New(machinedeployment.Options{
		Client: c, LiveReader: live, Recorder: recorder{p}, Clock: p.clock, MachineCacheVersion: machines.version,
		StopReason: p.stopReason, Ledger: p.ledger, Decisions: p.decided,
		NoOutdatedTaints: !p.world.safety.optionalReconcilers.has(OutdatedTaints),
	}), origin.deployments)
	more, err := p.optionalManagerControllers(origin)
	return append([]wiring.Controller{p.sets.Wiring(), p.deployments.Wiring()}, more...), err
}

func (p *Process) provider(origin *Process) ([]wiring.Controller, error) {
	ctx := context.Background()
	err := p.cached([]process.Kind{
		{Object: &v1beta1.Machine{}}, {Object: &v1beta1.MachineClass{}},
		{Object: wiring.MachineSets()}, {Object: wiring.Secrets(), Transform: process.TransformMetadata},
	}, p.control, wiring.Control)
	if err != nil {
		return nil, err
	}
	targetKinds := []process.Kind{{Object: &corev1.Node{}, Transform: process.TransformNode},
		{Object: &policyv1.PodDisruptionBudget{}}}
	err = p.cached(append(targetKinds, p.world.safety.optionalReconcilers.providerKinds()...), p.target, wiring.Target)
	if err != nil {
		return nil, err
	}
	for _, register := range []func(context.Context, client.FieldIndexer) error{
		index.RegisterMachines, resolve.RegisterIndexes,
	} {
		if err := register(ctx, p.control); err != nil {
			return nil, err
		}
	}
	if err := index.RegisterTarget(ctx, p.target); err != nil {
		return nil, err
	}
	w := p.world
	control, controlLive := newCachedClient(p, p.control, Provider), p.live(p.control)
	target, targetLive := newCachedClient(p, p.target, Provider), p.live(p.target)
	fenced := cloud.New(cloud.Options{Driver: driver{p, w.cloud}, Fence: p.fence, Clock: p.clock})
	p.drains = successor(drain.New(drain.Options{
		Target: targetLive, Clock: p.clock, BudgetReader: target, Epoch: p.epoch(),
	}), origin.drains)
	classes := &resolve.Resolver{Classes: control, Secrets: controlLive}
	seen, err := p.control.viewOf(&v1beta1.Machine{})
	if err != nil {
		return nil, err
	}
	p.machines = successor(machine.New(machine.Options{
		Cloud: fenced, Power: fenced, ClusterID: clusterID, Client: control, LiveReader: controlLive,
		MachineCacheVersion: seen.version,
		Classes:             classes, Reachability: p.outages(),
		Recorder: recorder{p}, Clock: p.clock, Drainer: p.drains, PreserveTimeout: preserveTimeout,
		ForceDeleted: orphans.ForceDeletedBook{Book: pages.Store{Client: controlLive, Namespace: leases},
			Provider: providerName, Rules: orphans.Rules{ClusterID: clusterID, Period: orphanPeriod}},
		Target: &machine.Target{Nodes: target, LiveClient: targetLive, API: func() (machine.Endpoint, error) {
			return machine.Endpoint{URL: "https://target.example:6443", CABundle: []byte("PEM")}, nil
		}},
	}), origin.machines)
	p.classes = successor(machineclass.New(machineclass.Options{
		Driver: fenced, Client: control, LiveClient: controlLive, Recorder: recorder{p}, Clock: p.clock,
	}), origin.classes)
	more, err := p.optionalProviderControllers(origin, fenced, classes)
	return slices.Concat([]wiring.Controller{p.machines.Wiring(p.control, p.drains.Triggers()), p.drains.Wiring()},
		p.classes.Wiring(p.control), more), err
}

func (p *Process) live(c *cache) *liveClient {
	return p.dial(c, p.name)
}

func (p *Process) add(t wiring.Controller, q *queue) error {
	c := &controller{process: p, table: t, queue: q}
	p.controllers = append(p.controllers, c)
	for _, w := range t.AllWatches() {
		from := p.control
		if w.Cluster == wiring.Target {
			from = p.target
		}
		v, err := from.viewOf(w.Object)
		if err != nil {
			return err
		}
		v.subscriptions = append(v.subscriptions, &subscription{controller: c, watch: w})
	}
	for _, s := range t.Sources {
		if err := s.Start(context.Background(), c.queue); err != nil {
			return err
		}
	}
	return nil
}

// queueInitialLists queues a creation event for each object in the caches.
func (p *Process) queueInitialLists() {
	for _, v := range p.views() {
		for _, s := range v.subscriptions {
			for _, o := range v.objects {
				s.events = append(s.events, event.CreateEvent{Object: o, IsInInitialList: true})
			}
		}
	}
}

func (s *subscription) handle(ctx context.Context) {
	e := s.events[0]
	s.events = s.events[1:]
	changes, keys, q := s.watch.Predicate, s.watch.Keys, s.controller.queue
	switch e := e.(type) {
	case event.CreateEvent:
		if changes.Create(e) {
			keys.Create(ctx, e, q)
		}
	case event.UpdateEvent:
		if changes.Update(e) {
			keys.Update(ctx, e, q)
		}
	case event.DeleteEvent:
		if changes.Delete(e) {
			keys.Delete(ctx, e, q)
		}
	}
}

func (c *controller) run(i int) {
	w, key := c.process.world, c.queue.take(i)
	frame := &frame{controller: c, key: key.NamespacedName, seen: map[string]int64{}, cached: map[string]int64{},
		began: w.clock.at, step: w.steps, revision: w.control.Revision()}
	for _, v := range c.process.views() {
		frame.seen[v.gvk.Kind], frame.cached[v.gvk.Kind] = v.seen, v.seen
		if c.process.name == Manager {
			frame.seen[v.gvk.Kind] = max(v.seen, w.oracle.managerSeen[v.gvk.Kind])
		}
	}
	w.frames = append(w.frames, frame)
	w.logf("%s reconciles %s", frame.name(), key)
	result, err := c.table.Reconciler.Reconcile(logr.NewContext(context.Background(), w.secrets.logger()), key)
	w.frames = w.frames[:len(w.frames)-1]
	if c.process.dead {
		return
	}
	c.queue.Done(key)
	if err == nil {
		w.oracle.mustBeStated(frame)
	}
	switch {
	case err != nil:
		w.secrets.checkText("an error of "+frame.name(), err.Error())
		w.logf("%s: %s: error: %v", frame.name(), key, err)
		c.queue.AddRateLimited(key)
	case result.RequeueAfter > 0:
		c.queue.Forget(key)
		c.queue.AddAfter(key, result.RequeueAfter)
	default:
		c.queue.Forget(key)
	}
}

// frame is a reconciliation in progress. Another reconciliation may run while a request of this reconciliation is in
// progress.
type frame struct {
	controller *controller
	key        types.NamespacedName
	// cached contains the revision of the process's cache for each kind at the beginning. seen is the same, or the
	// revision up to which a former manager had seen all changes, if that is later.
	cached, seen map[string]int64
	began        time.Time
	step         int
	revision     int64
	sent         int64
	// unstated contains the deletions for which the reconciliation must still state a reason.
	unstated []unstated
}

func (f *frame) name() string {
	if f == nil {
		return ""
	}
	return f.controller.process.name + "/" + f.controller.table.Name
}

func (w *World) top() *frame {
	if len(w.frames) == 0 {
		return nil
	}
	return w.frames[len(w.frames)-1]
}

type recorder struct{ process *Process }

// Eventf implements events.EventRecorder.
func (r recorder) Eventf(regarding, _ runtime.Object, kind, reason, choice, note string, args ...any) {
	if r.process.dead {
		return
	}
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = client.ObjectKeyFromObject(o).String()
	}
	text := fmt.Sprintf(note, args...)
	r.process.world.secrets.checkText("an event of "+name, text)
	if kind == corev1.EventTypeWarning {
		r.process.world.warnings[fmt.Sprintf("%s event %s", objectName(regarding), reason)] = true
	}
	r.process.world.logf("%s event of %s: %s (%s): %s", kind, name, reason, choice, text)
	r.process.world.oracle.checkStatement(reason, text)
}
