package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/queueing"
)

const (
	// stoppedPoll is how often to look whether the process may go on again: no event tells.
	stoppedPoll = 5 * time.Second
	// maxMarks bounds the marks of one pass. Owners replace few machines at a time, the newest first.
	maxMarks = 100
)

// Options are what a Reconciler works with.
type Options struct {
	// Client reads the control cluster from the cache and writes the status of checks.
	Client client.Client
	// Live reads and writes the control cluster itself.
	Live client.Client
	// Nodes is the target cluster; nil where there is none.
	Nodes *Nodes
	// Recorder records events on MachineHealthChecks and Machines.
	Recorder events.EventRecorder
	Clock    clock.PassiveClock
	// Stopped says why nothing must be remediated now, with the reason and the message of a condition; empty if it may be.
	// Default: it always may.
	Stopped func() (reason, message string)
	// StableSince says since when this process leads and reaches both clusters; false if it is not so now. Default:
	// since the first pass.
	StableSince func() (time.Time, bool)
	// OutageEnded says when the last outage that this process has seen was over, zero if it saw none. Without it no clock
	// runs from before StableSince.
	OutageEnded func() time.Time
	// BuiltIn is the policy for machines that no check selects.
	BuiltIn Policy
	// MeltdownThreshold in percent. Default DefaultMeltdownThreshold.
	MeltdownThreshold int
	// Metrics may be nil.
	Metrics *Metrics
}

// Nodes reads Nodes of the target cluster.
type Nodes struct {
	// Cached is a cache of them, Live the cluster itself.
	Cached, Live client.Reader
	// Synced reports whether the cache was filled. Default: it was.
	Synced func() bool
}

// Reconciler judges the machines and marks those that must be remediated.
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

// Reconcile makes one pass over all machines. There is one key.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	r.Metrics.lead()
	p := &pass{Reconciler: r, now: r.Clock.Now(), frozenSets: map[types.NamespacedName]bool{}}
	if r.state.began.IsZero() {
		r.state.began = p.now
	}
	if err := p.run(ctx); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: p.requeueAfter}, nil
}

// pass is one check everything.
type pass struct {
	*Reconciler
	now    time.Time
	clocks Clocks

	checks   []v1beta1.MachineHealthCheck
	subjects []Subject
	// sets has all machines by the UID of their controller, those being deleted too.
	sets map[types.UID][]*v1beta1.Machine
	// frozenSets is what was found out about owners.
	frozenSets map[types.NamespacedName]bool

	// requeueAfter is when to check again without an event; zero is never.
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
	if err := p.observe(ctx); err != nil {
		return err
	}
	situation := Situation{Now: p.now, Clocks: p.clocks, Meltdown: p.followMeltdown(ctx)}
	situation.Clocks.Recovered = p.state.recovered
	p.state.seen = p.state.seen.newPass()
	p.clocks.Observed, situation.Clocks.Observed = p.state.seen, p.state.seen

	var errs []error
	groups := p.groups()
	p.Metrics.grouped(groups)
	errs = append(errs, p.recordRows(ctx, groups))
	wishes := map[types.UID]wanted{}
	for _, g := range groups {
		p.freeze(ctx, g, situation)
		j := Judge(g.policy, g.subjects, situation)
		p.requeueIn(j.RecheckAfter)
		collect(wishes, g.policy, j.Wishes)
		errs = append(errs, p.report(ctx, g, j))
	}
	errs = append(errs, p.mark(ctx, wishes, situation))
	return p.settle(errors.Join(errs...))
}

// stopped says why nothing is judged now.
func (p *pass) stopped() Reason {
	if p.Stopped != nil {
		if reason, message := p.Stopped(); reason != "" {
			return Reason{reason, message}
		}
	}
	p.clocks.Stable = p.state.began
	if p.StableSince != nil {
		since, stable := p.StableSince()
		if !stable {
			return Reason{v1beta1.ReasonControlPlaneUnreachable, "It is not known yet whether both clusters can be reached."}
		}
		p.clocks.Stable = since
	}
	p.clocks.Thawed = p.clocks.Stable
	if p.OutageEnded != nil {
		p.clocks.Thawed = p.OutageEnded()
	}
	if p.Nodes != nil && p.Nodes.Synced != nil && !p.Nodes.Synced() {
		return Reason{v1beta1.ReasonControlPlaneUnreachable, "The nodes of the target cluster were not listed yet."}
	}
	return Reason{}
}

// settle makes a later pass of errors that only say that somebody else wrote first.
func (p *pass) settle(err error) error {
	if err != nil && onlyConflicts(err) {
		p.requeueIn(queueing.ConflictDelay)
		return nil
	}
	if err != nil {
		return fmt.Errorf("check the health of machines: %w", err)
	}
	return nil
}

// requeueIn asks for another pass after d at the latest; zero is never.
func (p *pass) requeueIn(d time.Duration) {
	if d > 0 && (p.requeueAfter == 0 || d < p.requeueAfter) {
		p.requeueAfter = d
	}
}
