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

const control, target = "control", "target"

// initialCheckLimit is the maximum time that CheckUnreachable waits.
const initialCheckLimit = time.Second

// ErrCredentialsRefused means that the API server rejects the credentials (401), or does not allow this process to read
// everything that it needs (403). Ping returns an error that wraps ErrCredentialsRefused.
var ErrCredentialsRefused = errors.New("the API server refuses the credentials")

// Cluster is the interface through which a Watch checks the control cluster or the target cluster. Both methods stop
// waiting when ctx ends.
type Cluster interface {
	// Ping returns nil if the API server is ready and allows this process to read everything that it needs.
	Ping(ctx context.Context) error
	// CaughtUp returns nil when the caches of this process contain everything that the API server had at the time of
	// the call.
	CaughtUp(ctx context.Context) error
}

// Options configure a Watch.
type Options struct {
	// Control is the control cluster. Target is the target cluster, or nil if there is none.
	Control, Target Cluster
	// Period is the time between two checks while the cluster is reachable. Default: DefaultPeriod.
	Period time.Duration
	// Timeout is the time within which two failed checks begin an outage. One check may take a third of Timeout. An
	// unreachable cluster is checked again after a sixth of Timeout. At the end of an outage, the caches may need the
	// whole Timeout to catch up. Default: DefaultTimeout.
	Timeout time.Duration
	// Leading is a channel that is closed when this process becomes the leader. Default: the process always leads.
	Leading <-chan struct{}
	Clock   clock.Clock
	Log     logr.Logger
	// FrozenGauge is the gauge that FrozenMetric returns. It may be nil.
	FrozenGauge *prometheus.GaugeVec
}

// Watch reports whether the clusters are reachable. The method Run checks the clusters periodically. A cluster counts
// as unreachable until its first check.
type Watch struct {
	options         Options
	control, target *cluster // target is nil if there is no target cluster

	mu      sync.Mutex
	leading time.Time // time at which this process became the leader, zero if it does not lead
}

type cluster struct {
	name string
	Cluster
	// requests contains a channel for each request of a check. The channel is closed after a check that began later
	// than the request.
	requests chan chan struct{}
	state    State // guarded by Watch.mu
}

// New returns a Watch. The Watch checks the clusters while its method Run runs.
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
	newCluster := func(name string, c Cluster) *cluster {
		return &cluster{name: name, Cluster: c, requests: make(chan chan struct{}), state: NewState(now)}
	}
	w := &Watch{options: o, control: newCluster(control, o.Control)}
	if o.Target != nil {
		w.target = newCluster(target, o.Target)
	}
	return w
}

func (w *Watch) clusters() []*cluster {
	return slices.DeleteFunc([]*cluster{w.control, w.target}, func(c *cluster) bool { return c == nil })
}

// Run checks the clusters until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	var watches sync.WaitGroup
	defer watches.Wait()
	for _, c := range w.clusters() {
		watches.Go(func() { w.watch(ctx, c) })
	}
	select {
	case <-w.options.Leading:
		w.RecordLeadership()
	case <-ctx.Done():
	}
}

// RecordLeadership records that this process has become the leader. The method Run calls RecordLeadership when
// Options.Leading is closed.
func (w *Watch) RecordLeadership() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.leading = w.options.Clock.Now()
}

// Checks returns one function for each cluster, beginning with the control cluster. Each function checks its cluster
// once, and returns the time until the next check.
func (w *Watch) Checks() (checks []func(context.Context) time.Duration) {
	for _, c := range w.clusters() {
		checks = append(checks, func(ctx context.Context) time.Duration { return w.probe(ctx, c) })
	}
	return checks
}

func (w *Watch) watch(ctx context.Context, c *cluster) {
	checked := make(chan struct{})
	for {
		next := w.probe(ctx, c)
		close(checked)
		checked = make(chan struct{})
		timer := w.options.Clock.NewTimer(next)
		select {
		case <-timer.C():
		case checked = <-c.requests:
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

func (w *Watch) probe(ctx context.Context, c *cluster) time.Duration {
	sent := w.options.Clock.Now()
	err := w.ask(ctx, w.options.Timeout/3, c.Ping)
	if before := w.stateOf(c); err == nil && before.Unreachable && before.IsChecked() {
		// The caches still show the state before the outage, so no decision may be made yet.
		if err = w.ask(ctx, w.options.Timeout, c.CaughtUp); err != nil && ctx.Err() == nil {
			w.options.Log.Info("Cluster answers again, but the caches of this process have not caught up with it yet", "cluster", c.name, "cause",
				err.Error())
		}
	}
	if ctx.Err() != nil {
		return 0 // The check was cancelled, so its result does not count.
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

func (w *Watch) report(c *cluster, before State, cause error) {
	log := w.options.Log.WithValues("cluster", c.name)
	switch now := c.state; {
	case now.Unreachable && now.CredentialsRefused && (!before.Unreachable || !before.CredentialsRefused):
		log.Info("Cluster refuses the credentials of this process: no machines are created or replaced until they are renewed", "cause", cause.Error())
	case now.Unreachable && (!before.Unreachable || !before.IsChecked()):
		log.Info("Cluster is unreachable: no machines are created or replaced until it answers", "cause", cause.Error())
	case !now.Unreachable && before.Unreachable && before.IsChecked():
		log.Info("Cluster answers again and is no longer unreachable", "after",
			now.ChangeTime.Sub(before.ChangeTime).Round(time.Second).String())
	}
	if w.options.FrozenGauge != nil {
		for _, reason := range outageReasons {
			value := 0.0
			if slices.ContainsFunc(w.clusters(), func(c *cluster) bool { return c.state.Unreachable && c.reason() == reason }) {
				value = 1
			}
			w.options.FrozenGauge.WithLabelValues(reason).Set(value)
		}
	}
}

var outageReasons = []string{v1beta1.ReasonControlPlaneUnreachable, v1beta1.ReasonControlCredentialsRefused,
	v1beta1.ReasonTargetCredentialsRefused}

func (c *cluster) reason() string {
	switch {
	case !c.state.CredentialsRefused:
		return v1beta1.ReasonControlPlaneUnreachable
	case c.name == target:
		return v1beta1.ReasonTargetCredentialsRefused
	default:
		return v1beta1.ReasonControlCredentialsRefused
	}
}

// CheckUnreachable checks the clusters that count as unreachable. It returns after at most a second. Call
// CheckUnreachable before the controllers start. Without this call, the controllers would treat every cluster as
// unreachable until the first check of Run.
func (w *Watch) CheckUnreachable(ctx context.Context) {
	limit := w.options.Clock.NewTimer(initialCheckLimit)
	defer limit.Stop()
	for _, c := range w.clusters() {
		if !w.stateOf(c).Unreachable {
			continue
		}
		checked := make(chan struct{})
		select {
		case c.requests <- checked:
		case <-limit.C():
			return
		case <-ctx.Done():
			return
		}
		select {
		case <-checked:
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

// StopReason returns why this process must not create, replace or remediate machines now: a reason of the condition
// Frozen and a message for users. If nothing prevents these actions, it returns empty strings. The message does not
// change during an outage.
func (w *Watch) StopReason() (reason, message string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stopped()
}

func (w *Watch) stopped() (reason, message string) {
	for _, c := range w.clusters() {
		switch s := c.state; {
		case !s.Unreachable:
		case s.CredentialsRefused:
			return c.reason(),
				fmt.Sprintf("The %s cluster has refused the credentials of this process since %s. Renew the credentials in its kubeconfig file, or restore its permissions.", c.name, s.ChangeTime.UTC().Format(time.RFC3339))
		case !s.IsChecked():
			return v1beta1.ReasonControlPlaneUnreachable,
				fmt.Sprintf("It is not known yet whether the %s cluster can be reached.", c.name)
		default:
			return v1beta1.ReasonControlPlaneUnreachable, fmt.Sprintf("The %s cluster has been unreachable since %s.", c.name,
				s.ChangeTime.UTC().Format(time.RFC3339))
		}
	}
	return "", ""
}

// TargetUnreachable reports whether the target cluster counts as unreachable, and when the outage began. Without a
// target cluster it returns false.
func (w *Watch) TargetUnreachable() (since time.Time, unreachable bool) {
	s := w.stateOf(w.target)
	return s.ChangeTime, s.Unreachable
}

// TargetRefuses reports whether the target cluster counts as unreachable because it rejects the credentials of this
// process. Machines can then join and run pods, but this process cannot observe this.
func (w *Watch) TargetRefuses() bool {
	s := w.stateOf(w.target)
	return s.Unreachable && s.CredentialsRefused
}

// TargetEpoch returns a number that changes whenever the target cluster becomes unreachable or reachable.
func (w *Watch) TargetEpoch() uint64 { return w.stateOf(w.target).Epoch }

// TargetOutages returns the past outages of the target cluster, the oldest first, and the current epoch. The list is
// complete until the epoch changes. Do not change the slice.
func (w *Watch) TargetOutages() (past []Outage, epoch uint64) {
	s := w.stateOf(w.target)
	return s.PastOutages, s.Epoch
}

// OutageEnded returns the end of the last outage of either cluster that this process observed, or zero if there was
// none.
func (w *Watch) OutageEnded() (at time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.clusters() {
		if n := len(c.state.PastOutages); n > 0 && c.state.PastOutages[n-1].To.After(at) {
			at = c.state.PastOutages[n-1].To
		}
	}
	return at
}

// StableSince returns the time since which this process has led and both clusters have been reachable. It returns false
// if the process does not lead or a cluster is unreachable. Timeouts for the health of machines and for orphans start
// at this time or later.
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
		if c.state.ChangeTime.After(since) {
			since = c.state.ChangeTime
		}
	}
	return since, true
}

// FrozenMetric registers the metric machinist_frozen, or returns the metric that is already registered under this name.
// Each component reports its freezes under its own reason.
func FrozenMetric(registerer prometheus.Registerer) (*prometheus.GaugeVec, error) {
	gauge := prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_frozen",
		Help: "Number of freezes for safety, by the reason of the condition Frozen. During a freeze, the process creates and replaces no machines. ControlPlaneUnreachable is 1 while one of its clusters is unreachable. ControlCredentialsRefused is 1 while the control cluster refuses its credentials, and TargetCredentialsRefused is 1 while the target cluster refuses them.",
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
