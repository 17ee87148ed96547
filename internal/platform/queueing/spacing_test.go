package queueing

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestSpacingGrowsUpToItsLimit(t *testing.T) {
	spacing := Spacing{PerObject: time.Millisecond, Max: 5 * time.Second}
	for objects, want := range map[int]time.Duration{0: 0, 7: 7 * time.Millisecond, 1000: time.Second,
		2000: 4 * time.Second, 2500: 5 * time.Second, 1_000_000: 5 * time.Second} {
		if got := spacing.Delay(objects); got != want {
			t.Errorf("%d objects: %s, want %s", objects, got, want)
		}
	}
}

type delayed struct {
	workqueue.TypedRateLimitingInterface[reconcile.Request]
	added []string
}

func (d *delayed) AddAfter(request reconcile.Request, after time.Duration) {
	d.added = append(d.added, fmt.Sprint(request.Name, " ", after))
}

func TestAfterEnqueuesEachAffectedRequestOnce(t *testing.T) {
	labelled := func(set string) client.Object {
		pod := &corev1.Pod{}
		pod.Labels = map[string]string{"set": set}
		return pod
	}
	handler := EnqueueAfter(func(_ context.Context, o client.Object) []reconcile.Request {
		return []reconcile.Request{{NamespacedName: key(o.GetLabels()["set"])}, {NamespacedName: key("all")}}
	}, func(request reconcile.Request) time.Duration { return time.Duration(len(request.Name)) * time.Second })
	for what, test := range map[string]struct {
		happens func(*delayed)
		want    string
	}{
		"created": {func(q *delayed) { handler.Create(t.Context(), event.CreateEvent{Object: labelled("a")}, q) },
			"[a 1s all 3s]"},
		"deleted": {func(q *delayed) { handler.Delete(t.Context(), event.DeleteEvent{Object: labelled("a")}, q) },
			"[a 1s all 3s]"},
		"changed": {func(q *delayed) {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: labelled("a"), ObjectNew: labelled("a")}, q)
		}, "[a 1s all 3s]"},
		"moved to another set": {func(q *delayed) {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: labelled("a"), ObjectNew: labelled("bb")}, q)
		}, "[a 1s all 3s bb 2s]"},
	} {
		q := &delayed{}
		test.happens(q)
		if got := fmt.Sprint(q.added); got != test.want {
			t.Errorf("%s: %s, want %s", what, got, test.want)
		}
	}
}
