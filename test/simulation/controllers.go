package simulation

import (
	"context"
	"fmt"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/bootstrap/approval"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/fleet/autoscaling"
	"machinist.dev/machinist/internal/fleet/disruption/report"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/health/orphans"
	pages "machinist.dev/machinist/internal/health/orphans/ledger"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/platform/process"
	"machinist.dev/machinist/internal/platform/reachability"
	"machinist.dev/machinist/internal/platform/wiring"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/remediator"
)

// Controllers is a set of optional controllers that run in a world, in addition to those that create and maintain
// machines. If the set is not empty, the processes also check whether both clusters are reachable.
type Controllers uint

// These are the optional controllers.
const (
	Health Controllers = 1 << iota
	Overshoot
	OutdatedTaints
	Orphans
	Approval
	// NodeGroups tells an autoscaler the Node capacity of an empty deployment. AllControllers does not include
	// NodeGroups.
	NodeGroups
	// BudgetReports updates the status of disruption budgets. AllControllers does not include BudgetReports, because
	// nothing in the simulation depends on this status.
	BudgetReports
	// CloudController imitates a cloud controller manager: kubelets register without a provider ID, and the cloud
	// controller sets the ID later. AllControllers does not include CloudController.
	CloudController
	// Remediators lets the manager create remediations for another operator. AllControllers does not include Remediators.
	Remediators

	AllControllers = Health | Overshoot | OutdatedTaints | Orphans | Approval
)

func (r Controllers) has(any Controllers) bool { return r&any != 0 }

// An administrator would configure these settings with flags. The settings are shorter than the defaults, and shorter
// than the time limit of a run. All settings except those of the orphan collection are longer than the lag of caches.
const (
	healthTimeout   = 5 * time.Minute
	healthThreshold = 55
	orphanPeriod    = 20 * time.Second
	orphanAge       = 50 * time.Second
	overshootUp     = 1
)

type optionalReconcilers struct {
	reach        *reachability.Watch
	probes       []probe
	health       *healthcheck.Reconciler
	overshoot    *overshoot.Reconciler
	orphans      *orphans.Collector
	orphanDrains *drain.Controller
	approval     *approval.Reconciler
	groups       *autoscaling.Reconciler
	budgets      *report.Reconciler
}

type probe struct {
	at   time.Time
	next time.Duration
	do   func() time.Duration
}

func (p *Process) watchReachability(origin *Process) {
	w := p.world
	if w.safety.optionalReconcilers == 0 {
		return
	}
	for _, c := range []*cache{p.control, p.target} {
		c.unreachable = func() bool { return w.linkTo(c.server).down() }
	}
	options := reachability.Options{Control: clusterProbe{p, p.control}, Target: clusterProbe{p, p.target},
		Clock: ticking{PassiveClock: p.clock}}
	p.reach = successor(reachability.New(options), origin.reach)
	if origin.reach == nil {
		p.reach.RecordLeadership()
	}
	for i, check := range p.reach.Checks() {
		l := probe{at: w.clock.at, do: func() time.Duration { return check(context.Background()) }}
		if origin.reach != nil {
			l.at, l.next = origin.probes[i].at, origin.probes[i].next
		}
		p.probes = append(p.probes, l)
	}
}

func (p *Process) probeDue() {
	if p.dead {
		return
	}
	for i := range p.probes {
		l := &p.probes[i]
		for !l.at.After(p.world.clock.at) {
			l.next = l.do()
			if l.at = l.at.Add(l.next); l.next == reachability.DefaultPeriod {
				l.at = p.world.clock.at.Add(l.next)
			}
		}
	}
}

// nextProbe returns the time of the next check that can have a new result. While all clusters are reachable, checks may
// be delayed, because their result does not change.
func (p *Process) nextProbe() (at time.Time, any bool) {
	for i, l := range p.probes {
		if (l.next < reachability.DefaultPeriod || p.world.safety.links[i].down()) && (!any || l.at.Before(at)) {
			at, any = l.at, true
		}
	}
	return at, any && !p.dead
}

type clusterProbe struct {
	process *Process
	cache   *cache
}

// Ping implements reachability.Cluster.
func (a clusterProbe) Ping(context.Context) error {
	return a.process.world.linkTo(a.cache.server).unreachable()
}

// CaughtUp implements reachability.Cluster. CaughtUp does not wait for a late cache, because the next check tests the
// cache again.
func (a clusterProbe) CaughtUp(context.Context) error {
	for _, v := range a.cache.views {
		if !v.metadata && !v.unfilled && (v.behind() || !v.frozenUntil.IsZero()) {
			return fmt.Errorf("the cache of %s is late", v.gvk.Kind)
		}
	}
	return nil
}

// stopReason returns the reason and a message if the process must not create or replace machines now. Otherwise, the
// reason is empty.
func (p *Process) stopReason() (reason, message string) {
	if p.reach == nil {
		return "", ""
	}
	return p.reach.StopReason()
}

func (p *Process) outages() machine.Reachability {
	if p.reach == nil {
		return nil
	}
	return p.reach
}

func (p *Process) epoch() func() uint64 {
	if p.reach == nil {
		return nil
	}
	return p.reach.TargetEpoch
}

func (r Controllers) managerKinds() (control, target []process.Kind) {
	if r.has(Health) {
		control = append(control, process.Kind{Object: &v1beta1.MachineHealthCheck{}})
	}
	if r.has(Health) {
		target = append(target, process.Kind{Object: &corev1.Node{}, Transform: process.TransformNode})
	}
	return control, target
}

func (r Controllers) providerKinds() []process.Kind {
	if r.has(Approval) {
		return []process.Kind{{Object: &certificatesv1.CertificateSigningRequest{}, Transform: approval.Transform}}
	}
	return nil
}

func (p *Process) optionalManagerControllers(origin *Process) ([]wiring.Controller, error) {
	w := p.world
	control, live := newCachedClient(p, p.control, Manager), p.live(p.control)
	target, targetLive := newCachedClient(p, p.target, Manager), p.live(p.target)
	var tables []wiring.Controller
	if w.safety.optionalReconcilers.has(NodeGroups) {
		if err := autoscaling.RegisterIndexes(context.Background(), p.control); err != nil {
			return nil, err
		}
		p.groups = successor(autoscaling.New(autoscaling.Options{Client: control, Clock: p.clock}), origin.groups)
		tables = append(tables, p.groups.Wiring())
	}
	if w.safety.optionalReconcilers.has(BudgetReports) {
		p.budgets = successor(report.New(report.Options{Client: control, Clock: p.clock, Recorder: recorder{p}}),
			origin.budgets)
		tables = append(tables, p.budgets.Wiring())
	}
	if w.safety.optionalReconcilers.has(Overshoot) {
		p.overshoot = successor(overshoot.New(overshoot.Options{
			Client: control, LiveReader: live, Clock: p.clock, Recorder: recorder{p},
			Limits: overshoot.Limits{Tolerance: overshootUp, Hysteresis: 1, Period: overshoot.DefaultPeriod},
		}), origin.overshoot)
		tables = append(tables, p.overshoot.Wiring())
	}
	if w.safety.optionalReconcilers.has(Health) {
		policy, err := (&healthcheck.BuiltIn{Timeout: healthTimeout, MaxUnhealthy: v1beta1.DefaultMaxUnhealthy,
			MeltdownThreshold: healthThreshold}).Policy()
		if err != nil {
			return nil, err
		}
		var remediators *healthcheck.Remediators
		if w.safety.optionalReconcilers.has(Remediators) {
			remediators = &healthcheck.Remediators{Client: targetLive, ClusterID: clusterID}
			for _, kind := range remediator.Kinds() {
				remediators.Kinds = append(remediators.Kinds, kind.GroupKind())
			}
		}
		p.health = successor(healthcheck.New(healthcheck.Options{
			Remediators: remediators,
			Client:      control, LiveClient: live, Clock: p.clock, Recorder: recorder{p}, BuiltIn: policy,
			MeltdownThreshold: healthThreshold,
			StopReason:        p.reach.StopReason, StableSince: p.reach.StableSince, OutageEnded: p.reach.OutageEnded,
			Nodes: &healthcheck.Nodes{CachedReader: target, LiveReader: targetLive, IsSynced: p.target.synced},
		}), origin.health)
		tables = append(tables, p.health.Wiring())
	}
	return tables, nil
}

func (p *Process) optionalProviderControllers(origin *Process, driver provider.Driver,
	classes *resolve.Resolver) ([]wiring.Controller, error) {
	w := p.world
	live, targetLive := p.live(p.control), p.live(p.target)
	var tables []wiring.Controller
	if w.safety.optionalReconcilers.has(Approval) {
		if err := approval.RegisterIndexes(context.Background(), p.target); err != nil {
			return nil, err
		}
		p.approval = successor(approval.New(approval.Options{
			Provider: providerName, ClusterID: clusterID, Machines: p.control, LiveClient: live,
			Cache: p.target, Target: targetLive,
			Classes: classes, Cloud: driver, Recorder: recorder{p}, Clock: p.clock,
		}), origin.approval)
		tables = append(tables, p.approval.Wiring(p.target.synced)...)
	}
	if w.safety.optionalReconcilers.has(Orphans) {
		p.orphanDrains = successor(drain.New(drain.Options{
			Target: targetLive, Clock: p.clock, BudgetReader: p.target, Epoch: p.epoch(),
		}), origin.orphanDrains)
		table := p.orphanDrains.Wiring()
		table.Name = "drain-orphans"
		tables = append(tables, table)
		p.orphans = successor(orphans.New(orphans.Options{
			Rules: orphans.Rules{ClusterID: clusterID, Period: orphanPeriod, MinAge: orphanAge, MaxDeletes: 1,
				ReportOnly: w.safety.reportOnly},
			Cloud:        driver,
			Client:       p.control,
			LiveClient:   live,
			Target:       &orphans.Target{Nodes: p.target, LiveClient: targetLive, Drainer: p.orphanDrains, Epoch: p.epoch()},
			Mismatch:     func() error { return nil },
			Record:       &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: leases, Name: "machinist-cluster"}},
			Ledger:       pages.Store{Client: live, Namespace: leases},
			Reachability: p.reach, CheckInstance: p.machines.CheckInstance, Recorder: recorder{p}, Clock: p.clock,
		}), origin.orphans)
		tables = append(tables, p.orphans.Wiring())
	}
	return tables, nil
}

const leases = "machinist-system"
