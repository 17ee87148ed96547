package migration

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

// Rule: migration-plan-follows-changes.
func TestChangeOfOldObjectRenewsPlan(t *testing.T) {
	l := newJourney(t)
	watcher, err := client.NewWithWatch(env.Impersonate(migratorUser), client.Options{Scheme: withCRDs(t)})
	l.must(err)
	l.r.Watch = watcher
	l.pass()
	planned := l.pass().Status
	if planned.PlanTime == nil {
		t.Fatal("the plan has no time")
	}
	if got := l.pass().Status.PlanTime; !got.Equal(planned.PlanTime) {
		t.Errorf("the time of an unchanged plan changes from %s to %s", planned.PlanTime, got)
	}
	event := func(within time.Duration) bool {
		select {
		case e := <-l.r.replan.changes:
			return client.ObjectKeyFromObject(e.Object) == l.key
		case <-time.After(within):
			return false
		}
	}
	for event(time.Second) { // the objects that exist at the beginning
		continue
	}
	for _, kind := range l.system().Kinds() {
		objects, err := readKind(l.ctx, l.admin, kind, l.from)
		l.must(err)
		patch := []byte(`{"metadata":{"labels":{"changed":"yes"}}}`)
		l.must(l.admin.Patch(l.ctx, objects[0], client.RawPatch(types.MergePatchType, patch)))
		if !event(10 * time.Second) {
			t.Errorf("a change of a %s causes no plan", kind.Kind)
		}
	}
	l.stage(v1beta1.MigrationAbort)
	l.runUntil(v1beta1.MigrationAborted)
	if _, watched := l.r.replan.watches.Load(l.key); watched {
		t.Error("the old objects are still watched after the phase Planning")
	}
	l.cleanOld()
}

// A change causes a plan within two seconds, but the plans of a large fleet do not follow one another without a
// pause.
func TestDelayOfPlans(t *testing.T) {
	var p replanner
	if got := p.delay(); got > 2*time.Second {
		t.Errorf("the plan follows a change after %s", got)
	}
	p.planTook = 10 * time.Second
	if got := p.delay(); got < p.planTook {
		t.Errorf("after a plan that took %s, the next plan follows after %s", p.planTook, got)
	}
}
