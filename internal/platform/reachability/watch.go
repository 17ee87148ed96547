package reachability

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"

	"machinist.dev/machinist/api/v1beta1"
)

// Defaults of Options.
const (
	DefaultPeriod  = time.Minute
	DefaultTimeout = 30 * time.Second
)

// control and target are the names of the clusters.
const control, target = "control", "target"

// settleTime is how long Settle waits at most.
const settleTime = time.Second

// ErrCredentialsRefused is wrapped by the error of Ping of a cluster that answers and does not accept who asks (401),
// or does not let it read what it must (403).
var ErrCredentialsRefused = errors.New("the API server refuses the credentials")

// Cluster is one that is checked. How long to wait is up to ctx in both methods.
type Cluster interface {
	// Ping asks the API server whether it is ready and lets this process read what it must: nil if so.
	Ping(ctx context.Context) error
	// CaughtUp returns nil when this process knows what the API server had at the time of the call, or later.
	CaughtUp(ctx context.Context) error
}

// Options are what a Watch works with.
type Options struct {
	// Control is the control cluster, Target the target cluster; nil where there is none.
	Control, Target Cluster
	// Period is the time between two checks a cluster that answers. Default DefaultPeriod.
	Period time.Duration
	// Timeout is the time within which two checks fail that begin an outage. A probe may take a third of it, and a sixth
	// passes between two checks a cluster that does not answer. As long as it may take to catch up with one that does
	// again. Default DefaultTimeout.
	Timeout time.Duration
	// Leading is closed when this process may act. Default: it always may.
	Leading <-chan struct{}
	Clock   clock.Clock
	Log     logr.Logger
	// Frozen is reported when the process is stopped; may be nil.
	Frozen *prometheus.GaugeVec
}

// Watch checks the clusters, as long as Run runs, and says what follows from what it sees. Until the first check is
// over, a cluster counts as unreachable.
type Watch struct {
	options         Options
	control, target *cluster // target is nil where there is none

	mu      sync.Mutex
	leading time.Time // zero as long as it does not
}

// cluster is one that is checked.
type cluster struct {
	name string
	Cluster
	// asked takes what must be closed after a check that begins now.
	asked chan chan struct{}
	state State // guarded by Watch.mu
}

// New returns a Watch that does not look yet.
func New(o Options) *Watch {
	if o.Period <= 0 {
		o.Period = DefaultPeriod
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.Leading == nil {
		always := make(chan struct{})
		close(always)
		o.Leading = always
	}
	now := o.Clock.Now()
	watched := func(name string, c Cluster) *cluster {
		return &cluster{name: name, Cluster: c, asked: make(chan chan struct{}), state: Unknown(now)}
	}
	w := &Watch{options: o, control: watched(control, o.Control)}
	if o.Target != nil {
		w.target = watched(target, o.Target)
	}
	return w
}

func (w *Watch) clusters() []*cluster {
	return slices.DeleteFunc([]*cluster{w.control, w.target}, func(c *cluster) bool { return c == nil })
}

// Run looks until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	for _, c := range w.clusters() {
		looking.Go(func() { w.watch(ctx, c) })
	}
	select {
	case <-w.options.Leading:
		w.Lead()
	case <-ctx.Done():
	}
}

// Lead makes the Watch count from now on as one whose process leads. Run does that when Options.Leading is closed.
func (w *Watch) Lead() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = w.options.Clock.Now()
}

// Checks returns one function for each cluster, the control cluster's first. It checks that cluster once and returns
// when to do so again. Run calls all of them, side by side.
func (w *Watch) Checks() (checks []func(context.Context) time.Duration) {
	for _, c := range w.clusters() {
		checks = append(checks, func(ctx context.Context) time.Duration { return w.probe(ctx, c) })
	}
	return checks
}

// watch checks one cluster until ctx ends.
func (w *Watch) watch(ctx context.Context, c *cluster) {
	looked := make(chan struct{})
	for {
		next := w.probe(ctx, c)
		close(looked)
		looked = make(chan struct{})
		timer := w.options.Clock.NewTimer(next)
		select {
		case <-timer.C():
		case looked = <-c.asked:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// probe checks a cluster once and returns when to do so again.
func (w *Watch) probe(ctx context.Context, c *cluster) time.Duration {
	sent := w.options.Clock.Now()
	err := w.ask(ctx, w.options.Timeout/3, c.Ping)
	if before := w.stateOf(c); err == nil && before.Unreachable && before.Known() {
		// What was seen before the outage is not what is there after it. Until that is known, nothing is decided.
		if err = w.ask(ctx, w.options.Timeout, c.CaughtUp); err != nil && ctx.Err() == nil {
			w.options.Log.Info("A cluster answers again, and its caches do not follow yet", "cluster", c.name, "cause",
				err.Error())
		}
	}
	if ctx.Err() != nil {
		return 0 // It says nothing about the cluster.
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	before := c.state
	if now := w.options.Clock.Now(); errors.Is(err, ErrCredentialsRefused) {
		c.state = before.ObserveRefusedCredentials(sent, now)
	} else {
		c.state = before.Observe(sent, now, err == nil)
	}
	w.report(c, before, err)
	if c.state.Unreachable || c.state.Failing() {
		return min(w.options.Period, w.options.Timeout/6)
	}
	return w.options.Period
}

func (w *Watch) ask(ctx context.Context, limit time.Duration, question func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return question(ctx)
}

// report makes known what has changed.
func (w *Watch) report(c *cluster, before State, cause error) {
	log := w.options.Log.WithValues("cluster", c.name)
	switch now := c.state; {
	case now.Unreachable && now.Refused && (!before.Unreachable || !before.Refused):
		log.Info("A cluster refuses the credentials of this process: until they are renewed, no machines are added or exchanged", "cause", cause.Error())
	case now.Unreachable && (!before.Unreachable || !before.Known()):
		log.Info("A cluster is unreachable: until it answers, no machines are added or exchanged", "cause", cause.Error())
	case !now.Unreachable && before.Unreachable && before.Known():
		log.Info("A cluster that was unreachable answers again", "after",
			now.Since.Sub(before.Since).Round(time.Second).String())
	}
	if w.options.Frozen != nil {
		for _, reason := range outageReasons {
			value := 0.0
			if slices.ContainsFunc(w.clusters(), func(c *cluster) bool { return c.state.Unreachable && c.reason() == reason }) {
				value = 1
			}
			w.options.Frozen.WithLabelValues(reason).Set(value)
		}
	}
}

// outageReasons are the reasons of the condition Frozen that an outage can have.
var outageReasons = []string{v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonControlCredentialsRefused,
	v1beta1.ReasonTargetCredentialsRefused}

// reason is that of the condition Frozen while the cluster is unreachable.
func (c *cluster) reason() string {
	switch {
	case !c.state.Refused:
		return v1beta1.ReasonControlPlaneUnreachable
	case c.name == target:
		return v1beta1.ReasonTargetCredentialsRefused
	default:
		return v1beta1.ReasonControlCredentialsRefused
	}
}

// Settle has the clusters that count as unreachable checked now, and returns when that is done, or after a second:
// for a start, so that what answers does not count as unreachable any more when the work begins.
func (w *Watch) Settle(ctx context.Context) {
	limit := w.options.Clock.NewTimer(settleTime)
	defer limit.Stop()
	for _, c := range w.clusters() {
		if !w.stateOf(c).Unreachable {
			continue
		}
		looked := make(chan struct{})
		select {
		case c.asked <- looked:
		case <-limit.C():
			return
		case <-ctx.Done():
			return
		}
		select {
		case <-looked:
		case <-limit.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watch) stateOf(c *cluster) State {
	if c == nil {
		return State{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return c.state
}

// Stopped says why this process must add, exchange or remediate no machines now: a reason of the condition Frozen,
// empty if it may, and a message for people, which stays the same during an outage.
func (w *Watch) Stopped() (reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped()
}

func (w *Watch) stopped() (reason, message string) {
	for _, c := range w.clusters() {
		switch s := c.state; {
		case !s.Unreachable:
		case s.Refused:
			return c.reason(),
				fmt.Sprintf("The %s cluster refuses the credentials of this process since %s. Renew them in its kubeconfig file, or give it back its permissions.", c.name, s.Since.UTC().Format(time.RFC3339))
		case !s.Known():
			return v1beta1.ReasonControlPlaneUnreachable,
				fmt.Sprintf("It is not known yet whether the %s cluster can be reached.", c.name)
		default:
			return v1beta1.ReasonControlPlaneUnreachable, fmt.Sprintf("The %s cluster cannot be reached since %s.", c.name,
				s.Since.UTC().Format(time.RFC3339))
		}
	}
	return "", ""
}

// TargetUnreachable reports whether the target cluster counts as unreachable, and since when. Where there is none, it
// never does.
func (w *Watch) TargetUnreachable() (since time.Time, unreachable bool) {
	s := w.stateOf(w.target)
	return s.Since, s.Unreachable
}

// TargetRefuses reports whether the target cluster counts as unreachable because it refuses the credentials of this
// process. Machines can join it then, and their pods run, and nothing of that is seen.
func (w *Watch) TargetRefuses() bool {
	s := w.stateOf(w.target)
	return s.Unreachable && s.Refused
}

// TargetEpoch changes whenever the target cluster becomes unreachable or comes back.
func (w *Watch) TargetEpoch() uint64 { return w.stateOf(w.target).Epoch }

// TargetOutages returns the outages of the target cluster that are over, the oldest first, and the epoch in which
// that is all there is. The slice is not to be changed.
func (w *Watch) TargetOutages() (past []Outage, epoch uint64) {
	s := w.stateOf(w.target)
	return s.Past, s.Epoch
}

// OutageEnded returns when the last outage that this process has seen was over, of either cluster; zero if it saw none.
func (w *Watch) OutageEnded() (at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clusters() {
		if n := len(c.state.Past); n > 0 && c.state.Past[n-1].To.After(at) {
			at = c.state.Past[n-1].To
		}
	}
	return at
}

// StableSince returns since when this process leads and all clusters can be reached, and false if it is not so now.
// Clocks that judge the health of machines, or what belongs to nobody, run from then at the earliest.
func (w *Watch) StableSince() (since time.Time, stable bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.leading.IsZero() {
		return time.Time{}, false
	}
	since = w.leading
	for _, c := range w.clusters() {
		if c.state.Unreachable {
			return time.Time{}, false
		}
		if c.state.Since.After(since) {
			since = c.state.Since
		}
	}
	return since, true
}

// FrozenMetric registers the metric machinist_frozen, or returns the one that is registered already: whatever freezes
// something reports it there under its own reason.
func FrozenMetric(registerer prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_frozen",
		Help: "How much is frozen for safety, by the reason of the condition Frozen. ControlPlaneUnreachable is 1 while the whole process adds and exchanges no machines since one of its clusters is unreachable, ControlCredentialsRefused and TargetCredentialsRefused while it does so since that cluster refuses its credentials.",
	}, []string{"reason"})
	err := registerer.Register(gauge)
	if err == nil {
		return gauge, nil
	}
	if registered, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, ok := registered.ExistingCollector.(*prometheus.GaugeVec); ok {
			return existing, nil
		}
	}
	return nil, fmt.Errorf("register metric machinist_frozen: %w", err)
}
