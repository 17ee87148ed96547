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

const patience = 30 * time.Second

type server struct {
	down, refuses, behind atomic.Bool
	probes                chan struct{} // receives a value for each check
	comparisons           atomic.Int32  // number of calls of CaughtUp
}

func newServer() *server { return &server{probes: make(chan struct{}, 100)} }

func (s *server) CaughtUp(context.Context) error {
	s.comparisons.Add(1)
	if s.behind.Load() {
		return errors.New("the cache is outdated")
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
		Control: w.control, Target: w.target, Leading: w.leading, Clock: w.clock, Log: logr.Discard(), FrozenGauge: w.frozen,
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
			t.Error("Run did not end")
		}
	})
	w.awaitChecks()
	return w
}

func (w *watched) awaitChecks() {
	w.t.Helper()
	for _, s := range []*server{w.control, w.target} {
		select {
		case <-s.probes:
		case <-time.After(patience):
			w.t.Fatal("a server was not checked")
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
			w.t.Fatalf("waited too long: %s", what)
		case <-tick.C:
		}
	}
}

// advance moves the clock forward and waits for the next check of the target cluster. If bothClusters is true, it also
// waits for the next check of the control cluster.
func (w *watched) advance(d time.Duration, bothClusters bool) {
	w.t.Helper()
	w.clock.Step(d)
	select {
	case <-w.target.probes:
	case <-time.After(patience):
		w.t.Fatalf("the target was not checked after %s", d)
	}
	if bothClusters {
		select {
		case <-w.control.probes:
		case <-time.After(patience):
			w.t.Fatalf("the control cluster was not checked after %s", d)
		}
	}
	w.eventually("both wait", func() bool { return w.clock.Waiters() == 2 })
}

// wantStopped checks that the message of StopReason contains a text. An empty text means no message.
func (w *watched) wantStopped(reports string) {
	w.t.Helper()
	reason, message := w.StopReason()
	value := testutil.ToFloat64(w.frozen.WithLabelValues(v1beta1.ReasonControlPlaneUnreachable))
	switch {
	case reports == "" && (reason != "" || message != "" || value != 0):
		w.t.Errorf("stopped: %s %q, metric %v", reason, message, value)
	case reports != "" && (reason != v1beta1.ReasonControlPlaneUnreachable || !strings.Contains(message, reports) ||
		value != 1):
		w.t.Errorf("stopped: %s %q, metric %v; want a message with %q", reason, message, value, reports)
	}
}

// Rules: reachability-by-two-probes, outage-stops-owners.
func TestTwoFailedChecksStopTheProcessAndOneSuccessLetsItContinue(t *testing.T) {
	w := watching(t)
	w.wantStopped("")
	w.target.down.Store(true)
	w.advance(time.Minute, true)
	w.wantStopped("")
	w.advance(5*time.Second, false)
	w.wantStopped("The target cluster has been unreachable since 2026-03-01T12:01:00Z.")
	if since, unreachable := w.TargetUnreachable(); !unreachable || !since.Equal(at(60)) {
		t.Errorf("unreachable is %t, since %s", unreachable, since)
	}
	w.advance(5*time.Second, false)
	w.target.down.Store(false)
	w.advance(5*time.Second, false)
	w.wantStopped("")
	if past, epoch := w.TargetOutages(); !equal(past, outages(0, 75)) || epoch != w.TargetEpoch() {
		t.Errorf("past outages %v in epoch %d of %d", past, epoch, w.TargetEpoch())
	}
}

// Rule: outage-ends-with-caches.
func TestAnOutageEndsWhenTheCachesHaveCaughtUp(t *testing.T) {
	w := watching(t)
	w.target.down.Store(true)
	w.advance(time.Minute, true)
	w.advance(5*time.Second, false)
	w.target.down.Store(false)
	w.target.behind.Store(true)
	epoch := w.TargetEpoch()
	for range 3 {
		w.advance(5*time.Second, false)
		w.wantStopped("The target cluster has been unreachable since 2026-03-01T12:01:00Z.")
	}
	if past, now := w.TargetOutages(); len(past) != 0 || now != epoch {
		t.Errorf("past outages %v in epoch %d, want none in epoch %d", past, now, epoch)
	}
	w.target.behind.Store(false)
	w.advance(5*time.Second, false)
	w.wantStopped("")
	if past, _ := w.TargetOutages(); !equal(past, outages(0, 85)) {
		t.Errorf("past outages %v", past)
	}
	before := w.target.comparisons.Load()
	w.advance(time.Minute, true)
	w.target.down.Store(true)
	w.advance(time.Minute, true)
	w.target.down.Store(false)
	w.advance(5*time.Second, false)
	if now := w.target.comparisons.Load(); now != before || w.control.comparisons.Load() != 0 {
		t.Errorf("caches were compared %d times after the outage, and %d times for a cluster without one", now-before,
			w.control.comparisons.Load())
	}
}

// Rule: refused-credentials-are-outage.
func TestRefusedCredentialsStopTheProcess(t *testing.T) {
	w := watching(t)
	w.target.refuses.Store(true)
	w.advance(time.Minute, true)
	w.wantStopped("")
	w.advance(5*time.Second, false)
	const reports = "The target cluster has refused the credentials of this process since 2026-03-01T12:01:00Z."
	wantRefused := func() {
		t.Helper()
		reason, message := w.StopReason()
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
	// Several servers may share an address, and one of them may be down. If this server does not answer a check, the
	// message must not change.
	w.target.down.Store(true)
	w.advance(5*time.Second, false)
	wantRefused()
	w.target.down.Store(false)
	w.target.refuses.Store(false)
	w.advance(5*time.Second, false)
	w.wantStopped("")
	if w.TargetRefuses() || w.target.comparisons.Load() == 0 {
		t.Errorf("TargetRefuses() = %t, and the caches were compared %d times", w.TargetRefuses(), w.target.comparisons.Load())
	}
}

// Rule: outage-stops-owners.
func TestAnUnreachableControlClusterStopsTheProcess(t *testing.T) {
	w := watching(t)
	w.control.down.Store(true)
	w.advance(time.Minute, true)
	w.clock.Step(5 * time.Second)
	w.eventually("stopped", func() bool { reason, _ := w.StopReason(); return reason != "" })
	w.wantStopped("The control cluster has been unreachable since 2026-03-01T12:01:00Z.")
	if _, unreachable := w.TargetUnreachable(); unreachable {
		t.Error("the target counts as unreachable")
	}
}

// Rule: reachability-by-two-probes.
func TestAClusterCountsAsUnreachableBeforeItsFirstCheck(t *testing.T) {
	w := New(Options{Control: newServer(), Target: newServer(), Clock: testclock.NewFakeClock(start), Log: logr.Discard()})
	if reason, message := w.StopReason(); reason == "" || !strings.Contains(message, "not known yet") {
		t.Errorf("stopped: %s %q", reason, message)
	}
	if _, unreachable := w.TargetUnreachable(); !unreachable {
		t.Error("the target does not count as unreachable")
	}
}

func TestOnlyTheControlClusterCountsWithoutATarget(t *testing.T) {
	w := New(Options{Control: newServer(), Clock: testclock.NewFakeClock(start), Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	w.CheckUnreachable(t.Context())
	if reason, message := w.StopReason(); reason != "" {
		t.Errorf("stopped: %s %q", reason, message)
	}
	if _, unreachable := w.TargetUnreachable(); unreachable {
		t.Error("TargetUnreachable() = true without a target cluster")
	}
	cancel()
	<-ended
}

// Rule: reachability-by-two-probes.
func TestCheckUnreachableDetectsAnswersAtOnce(t *testing.T) {
	w := watching(t, func(w *watched) { w.control.down.Store(true); w.target.down.Store(true) })
	w.wantStopped("The control cluster has been unreachable")
	w.control.down.Store(false)
	w.target.down.Store(false)
	w.CheckUnreachable(t.Context()) // The test does not advance the clock, so the limit does not end the call.
	w.wantStopped("")
}

// hangingServer is a fake API server that never answers. It must be a buffered channel: Ping sends a value to the
// channel at the first check.
type hangingServer chan struct{}

func (h hangingServer) Ping(ctx context.Context) error {
	select {
	case h <- struct{}{}:
	default:
	}
	<-ctx.Done()
	return ctx.Err()
}

func (h hangingServer) CaughtUp(ctx context.Context) error { return h.Ping(ctx) }

// Rule: reachability-by-two-probes.
func TestCheckUnreachableWaitsAtMostASecond(t *testing.T) {
	clock, hangs := testclock.NewFakeClock(start), make(hangingServer, 1)
	w := New(Options{Control: hangs, Clock: clock, Log: logr.Discard()})
	ctx, cancel := context.WithCancel(t.Context())
	ended, returned := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx)
	}()
	<-hangs
	go func() {
		defer close(returned)
		w.CheckUnreachable(ctx)
	}()
	for clock.Waiters() == 0 {
		select {
		case <-returned:
			t.Fatal("CheckUnreachable did not wait")
		default:
		}
	}
	clock.Step(initialCheckLimit)
	<-returned
	cancel()
	<-ended
}

// Rule: clocks-restart-after-outage.
func TestStableSinceTheEndOfAnOutageOrTheStartOfLeading(t *testing.T) {
	w := watching(t)
	if since, stable := w.StableSince(); stable {
		t.Errorf("stable since %s without leading", since)
	}
	w.advance(time.Minute, true)
	close(w.leading)
	w.eventually("stable", func() bool { _, stable := w.StableSince(); return stable })
	if since, _ := w.StableSince(); !since.Equal(at(60)) {
		t.Errorf("stable since %s, want the start of leading", since)
	}
	w.target.down.Store(true)
	w.advance(time.Minute, true)
	w.advance(5*time.Second, false)
	if since, stable := w.StableSince(); stable {
		t.Errorf("stable since %s during an outage", since)
	}
	w.target.down.Store(false)
	w.advance(5*time.Second, false)
	if since, stable := w.StableSince(); !stable || !since.Equal(at(130)) {
		t.Errorf("stable %t since %s, want the end of the outage", stable, since)
	}
}

func TestFrozenMetricIsShared(t *testing.T) {
	registry := prometheus.NewRegistry()
	one, err := FrozenMetric(registry)
	if err != nil {
		t.Fatal(err)
	}
	if another, err := FrozenMetric(registry); err != nil || another != one {
		t.Errorf("FrozenMetric() returned another metric, error %v", err)
	}
	registry = prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "machinist_frozen", Help: "x"}))
	if _, err := FrozenMetric(registry); err == nil {
		t.Error("FrozenMetric() = nil although another metric has the name")
	}
}
