package reachability

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	testclock "k8s.io/utils/clock/testing"

	"machinist.dev/machinist/api/v1beta1"
)

// patience is how long a test waits for what must come.
const patience = 30 * time.Second

// server is an API server that answers as it is reported.
type server struct {
	down, refuses, behind atomic.Bool
	probes                chan struct{} // one for each check
	catches               atomic.Int32  // how often it was asked whether we have caught up
}

func newServer() *server { return &server{probes: make(chan struct{}, 100)} }

func (s *server) CaughtUp(context.Context) error {
	s.catches.Add(1)
	if s.behind.Load() {
		return errors.New("the cache is old")
	}
	return nil
}

func (s *server) Ping(context.Context) error {
	s.probes <- struct{}{}
	if s.down.Load() {
		return errors.New("connection refused")
	}
	if s.refuses.Load() {
		return fmt.Errorf("%w: Unauthorized", ErrCredentialsRefused)
	}
	return nil
}

// watched is a Watch of two servers under a clock that only the test moves.
type watched struct {
	*Watch
	t               *testing.T
	clock           *testclock.FakeClock
	control, target *server
	leading         chan struct{}
	frozen          *prometheus.GaugeVec
}

func watching(t *testing.T, change ...func(*watched)) *watched {
	t.Helper()
	frozen, err := FrozenMetric(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, clock: testclock.NewFakeClock(start), control: newServer(), target: newServer(),
		leading: make(chan struct{}), frozen: frozen}
	for _, f := range change {
		f(w)
	}
	w.Watch = New(Options{
		Control: w.control, Target: w.target, Leading: w.leading, Clock: w.clock, Log: logr.Discard(), Frozen: w.frozen,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(patience):
			t.Error("Run does not end")
		}
	})
	w.looked()
	return w
}

// looked waits until both servers were checked and wait for the next check.
func (w *watched) looked() {
	w.t.Helper()
	for _, s := range []*server{w.control, w.target} {
		select {
		case <-s.probes:
		case <-time.After(patience):
			w.t.Fatal("nobody looks")
		}
	}
	w.eventually("both wait", func() bool { return w.clock.Waiters() == 2 })
}

func (w *watched) eventually(what string, is func() bool) {
	w.t.Helper()
	deadline, tick := time.After(patience), time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-deadline:
			w.t.Fatalf("not so: %s", what)
		case <-tick.C:
		}
	}
}

// after lets time pass, after which the target was reconciled again and, if both, the control cluster too.
func (w *watched) after(d time.Duration, both bool) {
	w.t.Helper()
	w.clock.Step(d)
	select {
	case <-w.target.probes:
	case <-time.After(patience):
		w.t.Fatalf("nobody checks the target after %s", d)
	}
	if both {
		select {
		case <-w.control.probes:
		case <-time.After(patience):
			w.t.Fatalf("nobody checks the control cluster after %s", d)
		}
	}
	w.eventually("both wait", func() bool { return w.clock.Waiters() == 2 })
}

func (w *watched) wantStopped(reports string) {
	w.t.Helper()
	reason, message := w.Stopped()
	value := testutil.ToFloat64(w.frozen.WithLabelValues(v1beta1.ReasonControlPlaneUnreachable))
	switch {
	case reports == "" && (reason != "" || message != "" || value != 0):
		w.t.Errorf("stopped: %s %q, metric %v", reason, message, value)
	case reports != "" && (reason != v1beta1.ReasonControlPlaneUnreachable || !strings.Contains(message, reports) ||
		value != 1):
		w.t.Errorf("stopped: %s %q, metric %v; want a message that says %q", reason, message, value, reports)
	}
}

// Rules: reachability-by-two-probes, outage-stops-owners.
func TestTwoFailedProbesStopTheProcessAndOneSuccessLetsItGoOn(t *testing.T) {
	w := watching(t)
	w.wantStopped("")
	w.target.down.Store(true)
	w.after(time.Minute, true)
	w.wantStopped("")
	w.after(5*time.Second, false)
	w.wantStopped("The target cluster cannot be reached since 2026-03-01T12:01:00Z.")
	if since, unreachable := w.TargetUnreachable(); !unreachable || !since.Equal(at(60)) {
		t.Errorf("away %t since %s", unreachable, since)
	}
	w.after(5*time.Second, false)
	w.target.down.Store(false)
	w.after(5*time.Second, false)
	w.wantStopped("")
	if past, epoch := w.TargetOutages(); !equal(past, outages(0, 75)) || epoch != w.TargetEpoch() {
		t.Errorf("past outages %v in epoch %d of %d", past, epoch, w.TargetEpoch())
	}
}

// Rule: outage-ends-with-caches.
func TestAnOutageIsOverWhenTheCachesHaveCaughtUp(t *testing.T) {
	w := watching(t)
	w.target.down.Store(true)
	w.after(time.Minute, true)
	w.after(5*time.Second, false)
	w.target.down.Store(false)
	w.target.behind.Store(true)
	epoch := w.TargetEpoch()
	for range 3 {
		w.after(5*time.Second, false)
		w.wantStopped("The target cluster cannot be reached since 2026-03-01T12:01:00Z.")
	}
	if past, now := w.TargetOutages(); len(past) != 0 || now != epoch {
		t.Errorf("the outages %v are over in epoch %d, and it began in epoch %d", past, now, epoch)
	}
	w.target.behind.Store(false)
	w.after(5*time.Second, false)
	w.wantStopped("")
	if past, _ := w.TargetOutages(); !equal(past, outages(0, 85)) {
		t.Errorf("past outages %v", past)
	}
	// What is not away costs no comparison.
	asked := w.target.catches.Load()
	w.after(time.Minute, true)
	w.target.down.Store(true)
	w.after(time.Minute, true)
	w.target.down.Store(false)
	w.after(5*time.Second, false)
	if now := w.target.catches.Load(); now != asked || w.control.catches.Load() != 0 {
		t.Errorf("caches were compared %d times after the outage, and %d times for a cluster without one", now-asked,
			w.control.catches.Load())
	}
}

// Rule: refused-credentials-are-outage.
func TestAClusterThatRefusesTheCredentialsStopsTheProcess(t *testing.T) {
	w := watching(t)
	w.target.refuses.Store(true)
	w.after(time.Minute, true)
	w.wantStopped("")
	w.after(5*time.Second, false)
	const reports = "The target cluster refuses the credentials of this process since 2026-03-01T12:01:00Z."
	wantRefused := func() {
		t.Helper()
		reason, message := w.Stopped()
		if reason != v1beta1.ReasonTargetCredentialsRefused || !strings.HasPrefix(message, reports) || !w.TargetRefuses() {
			t.Errorf("stopped: %s %q, refused %t", reason, message, w.TargetRefuses())
		}
		for reason, want := range map[string]float64{v1beta1.ReasonTargetCredentialsRefused: 1,
			v1beta1.ReasonControlPlaneUnreachable: 0, v1beta1.ReasonControlCredentialsRefused: 0} {
			if got := testutil.ToFloat64(w.frozen.WithLabelValues(reason)); got != want {
				t.Errorf("machinist_frozen of %s is %v", reason, got)
			}
		}
	}
	wantRefused()
	// Of several servers at one address one may be unreachable. The words stay the same.
	w.target.down.Store(true)
	w.after(5*time.Second, false)
	wantRefused()
	w.target.down.Store(false)
	w.target.refuses.Store(false)
	w.after(5*time.Second, false)
	w.wantStopped("")
	if w.TargetRefuses() || w.target.catches.Load() == 0 {
		t.Errorf("refused %t, and the caches were compared %d times", w.TargetRefuses(), w.target.catches.Load())
	}
}

// Rule: outage-stops-owners.
func TestTheControlClusterStopsTheProcessToo(t *testing.T) {
	w := watching(t)
	w.control.down.Store(true)
	w.after(time.Minute, true)
	w.clock.Step(5 * time.Second)
	w.eventually("stopped", func() bool { reason, _ := w.Stopped(); return reason != "" })
	w.wantStopped("The control cluster cannot be reached since 2026-03-01T12:01:00Z.")
	if _, unreachable := w.TargetUnreachable(); unreachable {
		t.Error("the target counts as unreachable")
	}
}

// Rule: reachability-by-two-probes.
func TestAClusterWithoutAProbeCountsAsUnreachable(t *testing.T) {
	w := New(Options{Control: newServer(), Target: newServer(), Clock: testclock.NewFakeClock(start), Log: logr.Discard()})
	if reason, message := w.Stopped(); reason == "" || !strings.Contains(message, "not known yet") {
		t.Errorf("stopped: %s %q", reason, message)
	}
	if _, unreachable := w.TargetUnreachable(); !unreachable {
		t.Error("the target does not count as unreachable")
	}
}

func TestWithoutATargetOnlyTheControlClusterCounts(t *testing.T) {
	w := New(Options{Control: newServer(), Clock: testclock.NewFakeClock(start), Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	w.Settle(t.Context())
	if reason, message := w.Stopped(); reason != "" {
		t.Errorf("stopped: %s %q", reason, message)
	}
	if _, unreachable := w.TargetUnreachable(); unreachable {
		t.Error("a target that there is not is unreachable")
	}
	cancel()
	<-ended
}

// Rule: reachability-by-two-probes.
func TestAtTheStartWhatAnswersIsSeenAtOnce(t *testing.T) {
	w := watching(t, func(w *watched) { w.control.down.Store(true); w.target.down.Store(true) })
	w.wantStopped("The control cluster cannot be reached")
	w.control.down.Store(false)
	w.target.down.Store(false)
	w.Settle(t.Context()) // Without the clock being moved.
	w.wantStopped("")
}

// hanging is an API server that never answers, and tells when it was asked; with room for one so that the first is not
// missed.
type hanging chan struct{}

func (h hanging) Ping(ctx context.Context) error {
	select {
	case h <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h hanging) CaughtUp(ctx context.Context) error { return h.Ping(ctx) }

// Rule: reachability-by-two-probes.
func TestTheStartWaitsASecondForWhatDoesNotAnswer(t *testing.T) {
	clock, hangs := testclock.NewFakeClock(start), make(hanging, 1)
	w := New(Options{Control: hangs, Clock: clock, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended, settled := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	<-hangs
	go func() {
		defer close(settled)
		w.Settle(ctx)
	}()
	for clock.Waiters() == 0 {
		select {
		case <-settled:
			t.Fatal("it does not wait")
		default:
		}
	}
	clock.Step(settleTime)
	<-settled
	cancel()
	<-ended
}

// Rule: clocks-restart-after-outage.
func TestWhatIsStableIsSoSinceTheThawOrSinceTheProcessLeads(t *testing.T) {
	w := watching(t)
	if since, stable := w.StableSince(); stable {
		t.Errorf("stable since %s without leading", since)
	}
	w.after(time.Minute, true)
	close(w.leading)
	w.eventually("stable", func() bool { _, stable := w.StableSince(); return stable })
	if since, _ := w.StableSince(); !since.Equal(at(60)) {
		t.Errorf("stable since %s, want the begin of the lead", since)
	}
	w.target.down.Store(true)
	w.after(time.Minute, true)
	w.after(5*time.Second, false)
	if since, stable := w.StableSince(); stable {
		t.Errorf("stable since %s in an outage", since)
	}
	w.target.down.Store(false)
	w.after(5*time.Second, false)
	if since, stable := w.StableSince(); !stable || !since.Equal(at(130)) {
		t.Errorf("stable %t since %s, want the thaw", stable, since)
	}
}

func TestTheMetricIsSharedWithOtherReasons(t *testing.T) {
	registry := prometheus.NewRegistry()
	one, err := FrozenMetric(registry)
	if err != nil {
		t.Fatal(err)
	}
	if another, err := FrozenMetric(registry); err != nil || another != one {
		t.Errorf("another metric, error %v", err)
	}
	registry = prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "machinist_frozen", Help: "x"}))
	if _, err := FrozenMetric(registry); err == nil {
		t.Error("no error for a metric of the same name that is another")
	}
}
