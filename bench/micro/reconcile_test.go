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

// silent records no event.
type silent struct{}

func (silent) Eventf(kruntime.Object, kruntime.Object, string, string, string, string, ...any) {}

// cloud is one that is not asked for anything.
type cloud struct{ provider.Driver }

func (cloud) Name() string { return "fake" }

func (cloud) CreateSettle() time.Duration { return time.Minute }

func (cloud) Adopt(context.Context, provider.AdoptRequest) (*provider.Instance, error) {
	return nil, errors.New("nothing is adopted")
}

// seen says that the cache is as new as can be.
func seen() string { return "1000000" }

// kind is one of the reconcilers, and the key of one of its objects.
type kind struct {
	name string
	of   func(c cached, clock clock.PassiveClock) reconcile.Reconciler
	key  types.NamespacedName
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
		{"marker", func(c cached, clock clock.PassiveClock) reconcile.Reconciler {
			return machinedeployment.NewNodeTainter(machinedeployment.NodeTainterOptions{Client: c, Nodes: c, Clock: clock})
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

// settled returns a function that makes one pass of a reconciler over a fleet of n machines, in sets of so many, that
// has nothing to write any more.
func (k kind) settled(tb testing.TB, n, perSet int) func() {
	tb.Helper()
	c, clock := cacheOf(tb, fleet(n, perSet)), testclock.NewFakePassiveClock(now)
	r := k.of(c, clock)
	pass := func() {
		// No pass is put off for having been a moment ago.
		clock.SetTime(clock.Now().Add(10 * time.Second))
		if _, err := r.Reconcile(tb.Context(), reconcile.Request{NamespacedName: k.key}); err != nil {
			tb.Fatal(err)
		}
	}
	for range 3 {
		pass()
	}
	made := len(c.writes.all)
	return func() {
		pass()
		if len(c.writes.all) > made {
			tb.Fatalf("a write when settled: %q", c.writes.all[made:])
		}
	}
}

// What one event costs at most, in a fleet of sets of 100 machines.
func BenchmarkReconcile(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			each(b, func(b *testing.B, n int) {
				pass := k.settled(b, n, setSize)
				for b.Loop() {
					pass()
				}
			})
		})
	}
}

// The same where all machines are in one set.
func BenchmarkReconcileOneSet(b *testing.B) {
	for _, k := range kinds() {
		b.Run(k.name, func(b *testing.B) {
			each(b, func(b *testing.B, n int) {
				pass := k.settled(b, n, n)
				for b.Loop() {
					pass()
				}
			})
		})
	}
}
