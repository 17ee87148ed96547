package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
)

const (
	// stoppedPoll is how often a stopped controller checks whether it may continue, because no event reports that.
	stoppedPoll = 5 * time.Second
	// maxMarks is how many machines one pass marks. Owners replace only a few machines at a time.
	maxMarks = 100
)

// Options are the dependencies and settings of a Reconciler.
type Options struct {
	// Client reads the control cluster from the cache and writes the status of checks.
	Client client.Client
	// LiveClient reads from and writes to the API server of the control cluster.
	LiveClient client.Client
	// Nodes reads the target cluster. It is nil if there is no target cluster.
	Nodes *Nodes
	// Remediators is nil if the manager may not create remediations for other operators, or if there is no target
	// cluster.
	Remediators *Remediators
	// Recorder records events on MachineHealthChecks and Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// StopReason returns the reason and message of a condition if no machine may be remediated now. If the reason is
	// empty or the field is nil, machines may be remediated.
	StopReason func() (reason, message string)
	// StableSince returns the time at which this process had become the leader and had reached both clusters. The
	// second result is false if the process is not the leader, or if a cluster cannot be reached. If the field is nil,
	// the time is that of the first pass over the machines.
	StableSince func() (time.Time, bool)
	// OutageEnded returns the end of the last outage that this process has seen, or zero. If the field is nil, no
	// timeout starts before the result of StableSince.
	OutageEnded func() time.Time
	// BuiltIn is the policy for machines that no MachineHealthCheck selects.
	BuiltIn Policy
	// MeltdownThreshold is a percentage of nodes. If a higher percentage of the nodes of a failure domain has problems,
	// this is a meltdown. Defaults to DefaultMeltdownThreshold.
	MeltdownThreshold int
	// Metrics may be nil.
	Metrics *Metrics
}

// Nodes reads Nodes of the target cluster.
type Nodes struct {
	// CachedReader is a client that reads Nodes from a cache. LiveReader is a client that reads Nodes from the API
	// server.
	CachedReader, LiveReader client.Reader
	// IsSynced reports whether the cache is filled. If IsSynced is nil, the cache is always filled.
	IsSynced func() bool
}

// Reconciler checks all machines and marks those that need remediation.
type Reconciler struct {
	Options
	state *state
}

// New returns a Reconciler.
func New(o Options) *Reconciler {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.MeltdownThreshold <= 0 {
		o.MeltdownThreshold = DefaultMeltdownThreshold
	}
	return &Reconciler{Options: o, state: newState()}
}

// Reconcile runs one pass over all machines. The queue has only one key.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.Metrics.enable()
	p := &pass{Reconciler: r, now: r.Clock.Now(), frozenSets: map[types.NamespacedName]bool{}}
	if r.state.began.IsZero() {
		r.state.began = p.now
	}
	if err := p.run(ctx); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

type pass struct {
	*Reconciler
	now    time.Time
	clocks Clocks

	checks   []v1beta1.MachineHealthCheck
	subjects []Subject
	// sets maps the UID of a controller, such as a MachineSet, to all its machines, including those being deleted.
	sets         map[types.UID][]*v1beta1.Machine
	frozenSets   map[types.NamespacedName]bool
	remediations remediations

	// requeueAfter is the time until the next pass without an event. Zero means never.
	requeueAfter time.Duration
}

func (p *pass) run(ctx context.Context) error {
	if err := p.readChecks(ctx); err != nil {
		return err
	}
	if why := p.stopped(); why.Reason != "" {
		p.requeueIn(stoppedPoll)
		return p.reportStopped(ctx, why)
	}
	if err := p.readMachines(ctx); err != nil {
		return err
	}
	situation := Situation{Now: p.now, Clocks: p.clocks, Meltdown: p.trackMeltdown(ctx)}
	situation.Clocks.RecoveryTimes = p.state.recovered
	p.state.seen = p.state.seen.newPass()
	p.clocks.Observations, situation.Clocks.Observations = p.state.seen, p.state.seen

	var errs []error
	groups := p.groups()
	p.Metrics.setUnselected(groups)
	errs = append(errs, p.recordRetries(ctx, groups), p.readRemediations(ctx, groups))
	desired, decisions := map[types.UID]desiredByPolicy{}, make([]Decision, len(groups))
	for i, g := range groups {
		p.checkOwners(ctx, g, situation)
		decisions[i] = Decide(g.policy, g.subjects, situation)
		p.requeueIn(decisions[i].RecheckAfter)
		merge(desired, g.policy, decisions[i].DesiredConditions)
	}
	errs = append(errs, p.updateRemediations(ctx, groups, desired, situation))
	for i, g := range groups {
		errs = append(errs, p.report(ctx, g, decisions[i]), p.forgetAttempts(ctx, decisions[i].Recovered))
	}
	if slices.ContainsFunc(errs, apierrors.IsConflict) {
		// The cache is outdated, so more Nodes may be unhealthy than it shows.
		return p.retryConflicts(errors.Join(errs...))
	}
	errs = append(errs, p.updateMarks(ctx, desired, situation), p.requestReboots(ctx))
	return p.retryConflicts(errors.Join(errs...))
}

func (p *pass) stopped() ConditionReason {
	if p.StopReason != nil {
		if reason, message := p.StopReason(); reason != "" {
			return ConditionReason{reason, message}
		}
	}
	p.clocks.StableSince = p.state.began
	if p.StableSince != nil {
		since, stable := p.StableSince()
		if !stable {
			return ConditionReason{v1beta1.ReasonControlPlaneUnreachable, "The connections to the API servers of both clusters were not checked yet."}
		}
		p.clocks.StableSince = since
	}
	p.clocks.OutageEnded = p.clocks.StableSince
	if p.OutageEnded != nil {
		p.clocks.OutageEnded = p.OutageEnded()
	}
	if p.Nodes != nil && p.Nodes.IsSynced != nil && !p.Nodes.IsSynced() {
		return ConditionReason{v1beta1.ReasonControlPlaneUnreachable, "The Nodes of the target cluster were not listed yet."}
	}
	return ConditionReason{}
}

func (p *pass) retryConflicts(err error) error {
	if err != nil && onlyConflicts(err) {
		p.requeueIn(queueing.ConflictDelay)
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the health of machines: %w", err)
	}
	return nil
}

// requeueIn requests another pass after d at the latest. Zero requests none.
func (p *pass) requeueIn(d time.Duration) {
	if d > 0 && (p.requeueAfter == 0 || d < p.requeueAfter) {
		p.requeueAfter = d
	}
}
