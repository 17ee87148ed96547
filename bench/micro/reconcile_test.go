package micro

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	testclock "k8s.io/utils/clock/testing"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/fleet/machineset"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/internal/health/overshoot"
	"machinist.dev/machinist/internal/machine"
	"machinist.dev/machinist/pkg/provider"
)

type silent struct{}

func (silent) Eventf(kruntime.Object, kruntime.Object, string, string, string, string, ...any) {}

type cloud struct{ provider.Driver }

func (cloud) Name() string { return "fake" }

func (cloud) CreateSettle() time.Duration { return time.Minute }

func (cloud) Adopt(context.Context, provider.AdoptRequest) (*provider.Instance, error) {
	return nil, errors.New("adoption is not supported")
}

// cacheVersion returns the resource version up to which the cache is current. The result is higher than the resource
// version of every object, so no reconciler waits for the cache.
func cacheVersion() string { return "1000000" }

type kind struct {
	name          string
	newReconciler func(c cached, clock clock.PassiveClock) reconcile.Reconciler
	key           types.NamespacedName
}

func kinds() []kind {
	logf.SetLogger(logr.Discard())
	first := types.NamespacedName{Namespace: namespace, Name: deploymentName(0)}
	return []kind{
		{"machine", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machine.New(machine.Options{
				Cloud: cloud{}, ClusterID: "cluster", Client: c, LiveReader: liveClient{c},
				Classes: &resolve.Resolver{Classes: c, Secrets: liveClient{c}},
				Target:  &machine.Target{Nodes: c, LiveClient: liveClient{c}}, Recorder: silent{}, Clock: clock,
			})
		}, types.NamespacedName{Namespace: namespace, Name: machineName(0)}},
		{"set", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machineset.New(machineset.Options{Client: c, LiveReader: liveClient{c}, Recorder: silent{}, Clock: clock,
				MachineCacheVersion: cacheVersion})
		}, types.NamespacedName{Namespace: namespace, Name: deploymentName(0) + "-1"}},
		{"deployment", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machinedeployment.New(machinedeployment.Options{Client: c, LiveReader: liveClient{c},
				Recorder: silent{}, Clock: clock,
				MachineCacheVersion: cacheVersion})
		}, first},
		{"overshoot", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return overshoot.New(overshoot.Options{Client: c, LiveReader: liveClient{c}, Recorder: silent{}, Clock: clock,
				Limits: overshoot.Limits{Tolerance: 2, Hysteresis: 1, Period: time.Minute}})
		}, first},
		{"health", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return healthcheck.New(healthcheck.Options{Client: c, LiveClient: liveClient{c},
				Nodes: &healthcheck.Nodes{CachedReader: c, LiveReader: liveClient{c}}, Recorder: silent{}, Clock: clock})
		}, types.NamespacedName{}},
	}
}

// steadyPass returns a function that reconciles a fleet of n machines once. The fleet has its desired state, so the
// reconciler writes nothing.
func (k kind) steadyPass(tb testing.TB, n, perSet int) func() {
	tb.Helper()
	c, clock := cacheOf(tb, fleet(n, perSet)), testclock.NewFakePassiveClock(now)
	r := k.newReconciler(c, clock)
	pass := func() {
		// Reconcilers may skip a pass that follows too soon.
		clock.SetTime(clock.Now().Add(10 * time.Second))
		if _, err := r.Reconcile(tb.Context(), reconcile.Request{NamespacedName: k.key}); err != nil {
			tb.Fatal(err)
		}
	}
	for range 3 {
		pass()
	}
	writesBefore := len(c.writes.all)
	return func() {
		pass()
		if len(c.writes.all) > writesBefore {
			tb.Fatalf("got writes for a settled fleet: %q", c.writes.all[writesBefore:])
		}
	}
}

// BenchmarkReconcile measures the most expensive event in a fleet with sets of 100 machines.
func BenchmarkReconcile(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			forEachSize(b, func(b *testing.B, n int) {
				pass := k.steadyPass(b, n, setSize)
				for b.Loop() {
					pass()
				}
			})
		})
	}
}

// BenchmarkReconcileOneSet measures the most expensive event with all machines in one set.
func BenchmarkReconcileOneSet(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			forEachSize(b, func(b *testing.B, n int) {
				pass := k.steadyPass(b, n, n)
				for b.Loop() {
					pass()
				}
			})
		})
	}
}
