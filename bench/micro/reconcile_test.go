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

// silent records no events.
type silent struct{}

func (silent) Eventf(kruntime.Object, kruntime.Object, string, string, string, string, ...any) {}

// cloud must not be called.
type cloud struct{ provider.Driver }

func (cloud) Name() string { return "fake" }

func (cloud) CreateSettle() time.Duration { return time.Minute }

func (cloud) Adopt(context.Context, provider.AdoptRequest) (*provider.Instance, error) {
	return nil, errors.New("adoption is not supported")
}

// seen returns a version that no object has, so that the cache always counts as new.
func seen() string { return "1000000" }

// kind is a reconciler with the key of one of its objects.
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
				Cloud: cloud{}, ClusterID: "cluster", Client: c, Live: live{c},
				Classes: &resolve.Resolver{Classes: c, Secrets: live{c}},
				Target:  &machine.Target{Nodes: c, Live: live{c}}, Recorder: silent{}, Clock: clock,
			})
		}, types.NamespacedName{Namespace: namespace, Name: machineName(0)}},
		{"set", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machineset.New(machineset.Options{Client: c, Live: live{c}, Recorder: silent{}, Clock: clock,
				MachineCacheVersion: seen})
		}, types.NamespacedName{Namespace: namespace, Name: deploymentName(0) + "-1"}},
		{"deployment", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machinedeployment.New(machinedeployment.Options{Client: c, Live: live{c}, Recorder: silent{}, Clock: clock,
				MachineCacheVersion: seen})
		}, first},
		{"overshoot", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return overshoot.New(overshoot.Options{Client: c, Live: live{c}, Recorder: silent{}, Clock: clock,
				Limits: overshoot.Limits{Up: 2, Down: 1, Period: time.Minute}})
		}, first},
		{"health", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return healthcheck.New(healthcheck.Options{Client: c, Live: live{c},
				Nodes: &healthcheck.Nodes{Cached: c, Live: live{c}}, Recorder: silent{}, Clock: clock})
		}, types.NamespacedName{}},
	}
}

// steadyPass returns a function that runs one pass of a reconciler for a fleet of n machines in sets of perSet
// machines. The reconciler has nothing to write any more.
func (k kind) steadyPass(tb testing.TB, n, perSet int) func() {
	tb.Helper()
	c, clock := cacheOf(tb, fleet(n, perSet)), testclock.NewFakePassiveClock(now)
	r := k.newReconciler(c, clock)
	pass := func() {
		// The clock advances, so that no pass is skipped because of a recent one.
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

// BenchmarkReconcile measures the maximum cost of one event, in a fleet with sets of 100 machines.
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

// BenchmarkReconcileOneSet measures the same with all machines in one set.
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
