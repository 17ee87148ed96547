package migration

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/workqueue"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/transfer/migration/source"
	"machinist.dev/machinist/test/env"
)

// delayedQueue sends the delayed requests to a channel.
type delayedQueue struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added chan delayedRequest
}

type delayedRequest struct {
	reconcile.Request
	delay time.Duration
}

func (q delayedQueue) AddAfter(request reconcile.Request, delay time.Duration) {
	q.added <- delayedRequest{request, delay}
}

// openWatches counts the watches that have not been stopped.
type openWatches struct {
	client.WithWatch
	open *atomic.Int32
}

func (c openWatches) Watch(ctx context.Context, list client.ObjectList,
	o ...client.ListOption) (watch.Interface, error) {
	w, err := c.WithWatch.Watch(ctx, list, o...)
	if err == nil {
		c.open.Add(1)
		w = openWatch{w, c.open}
	}
	return w, err
}

type openWatch struct {
	watch.Interface
	open *atomic.Int32
}

func (w openWatch) Stop() {
	w.open.Add(-1)
	w.Interface.Stop()
}

// Rule: migration-plan-follows-changes.
func TestChangeOfOldObjectRenewsPlan(t *testing.T) {
	l := newJourney(t)
	watcher, err := client.NewWithWatch(env.Impersonate(migratorUser), client.Options{Scheme: withCRDs(t)})
	l.must(err)
	watches := openWatches{watcher, &atomic.Int32{}}
	l.r.Watch = watches
	queue := delayedQueue{added: make(chan delayedRequest)}
	ctx, stop := context.WithCancel(l.ctx)
	defer stop()
	l.must(l.r.ChangesOfOldObjects().Start(ctx, queue))
	change := func(what string) {
		t.Helper()
		select {
		case request := <-queue.added:
			if request.NamespacedName != l.key || request.delay < replanDelay || request.delay > 2*time.Second {
				t.Errorf("%s causes the request %+v", what, request)
			}
		case <-time.After(env.Patience):
			t.Fatalf("%s causes no request", what)
		}
	}
	l.pass()
	planned := l.pass().Status
	if planned.PlanTime == nil {
		t.Fatal("the plan has no time")
	}
	if got := l.pass().Status.PlanTime; !got.Equal(planned.PlanTime) {
		t.Errorf("the time of an unchanged plan changes from %s to %s", planned.PlanTime, got)
	}
	for name := range l.state() {
		change("the existing object " + name)
	}
	for _, kind := range l.system().Kinds() {
		objects, err := readKind(l.ctx, l.admin, kind, l.from)
		l.must(err)
		patch := `{"metadata":{"labels":{"changed":"yes"}}}`
		if kind.Role == source.RoleClass {
			patch = `{"secretRef":{"name":"missing"}}`
		}
		l.must(l.admin.Patch(l.ctx, objects[0], merge(patch)))
		change("a change of a " + kind.Kind)
	}
	if got := l.pass().Status; got.PlanHash == planned.PlanHash || !got.PlanTime.After(planned.PlanTime.Time) {
		t.Errorf("the plan %s of %s does not follow the changes", got.PlanHash, got.PlanTime)
	}
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	eventually(t, "the watches are stopped", func() bool { return watches.open.Load() == 0 })
	l.cleanOld()
}

// A change causes a plan within two seconds. The plans of a large fleet do not follow one another without a pause, and
// a failed plan is not repeated at once. The plans of one Migration do not delay another.
func TestDelayOfPlans(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	r := New(Options{Clock: clock, Timing: DefaultTiming})
	large, small := &v1beta1.Migration{}, &v1beta1.Migration{}
	large.Name, small.Name = "large", "small"
	expect := func(m *v1beta1.Migration, want time.Duration) {
		t.Helper()
		if got := r.replan.delay(client.ObjectKeyFromObject(m)); got != want {
			t.Errorf("%s: the next plan follows a change after %s, want %s", m.Name, got, want)
		}
	}
	start := clock.Now()
	expect(large, replanDelay)
	r.planned(large, start, errors.New("forbidden"))
	expect(large, DefaultTiming.Replan)
	clock.Step(10 * time.Second)
	r.planned(large, start, nil)
	expect(large, 20*time.Second)
	r.planned(large, clock.Now(), errors.New("forbidden"))
	expect(large, 20*time.Second)
	expect(small, replanDelay)
	r.planned(small, clock.Now(), nil)
	expect(small, replanDelay)
	r.stopWatching(client.ObjectKeyFromObject(large))
	expect(large, replanDelay)
}
