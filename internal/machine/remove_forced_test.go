package machine

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

type forceDeletedRecord struct {
	err  error
	left []string
}

func (b *forceDeletedRecord) AddForceDeleted(_ context.Context, m *v1beta1.Machine, _ time.Time) error {
	if b.err == nil {
		b.left = append(b.left, m.Name+" "+m.Spec.ProviderID)
	}
	return b.err
}

// unremovable returns functions that prevent the deletion of the instance, each in another way.
func unremovable() map[string]func(*world) {
	return map[string]func(*world){
		"the cloud refuses the credentials": func(w *world) {
			w.cloud.OnDelete = func(string) error { return provider.Errorf(provider.Unauthenticated, "401") }
		},
		"the cloud fails": func(w *world) {
			w.cloud.OnDelete = func(string) error { return provider.Errorf(provider.Internal, "broken") }
		},
		"the cloud never finishes": func(w *world) { w.cloud.Shutdown = 1000 * time.Hour },
		"the credentials are gone": func(w *world) {
			secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}}
			w.removeFinalizers(secret)
			if err := w.api.Delete(w.t.Context(), secret); err != nil {
				w.t.Fatal(err)
			}
		},
	}
}

// Rule: force-delete-always-ends.
func TestForceDeleteEndsAlthoughTheInstanceIsNotDeleted(t *testing.T) {
	t.Parallel()
	for name, prevent := range unremovable() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, book := newWorld(t), &forceDeletedRecord{}
			w.options.ForceDeleted = book
			w.restart()
			w.class("small", "")
			id := w.running("m").Spec.ProviderID
			prevent(w)
			w.delete("m")
			deleted := w.clock.Now()
			w.runUntil("m", "a deletion that waits", func() bool { return w.clock.Since(deleted) > 2*removalPatience })
			if len(book.left) != 0 {
				t.Fatal("a deletion without force leaves the instance")
			}
			w.annotate("m", v1beta1.AnnotationForceDelete)
			w.events.take()
			began := w.clock.Now()
			w.untilGone("m")
			if took := w.clock.Since(began); took > removalPatience+time.Minute {
				t.Errorf("the force-deletion took %s", took)
			}
			if !slices.Equal(book.left, []string{"m " + id}) {
				t.Errorf("recorded: %q", book.left)
			}
			events := strings.Join(w.events.take(), "\n")
			if !strings.Contains(events, "Warning InstanceLeft: Instance "+id) || strings.Contains(events, "is gone") {
				t.Errorf("events:\n%s", events)
			}
			if len(w.cloud.LiveInstances()) != 1 {
				t.Error("the instance is gone, so this case tests nothing")
			}
			if w.getNode(nodeNameOf(w.namespace, "m")) == nil {
				t.Error("the Node of an instance that may run was deleted")
			}
		})
	}
}

// After a Create whose answer was lost, an instance may exist although it was never recorded.
//
// Rule: force-delete-always-ends.
func TestForceDeleteEndsIfTheInstanceIsUnknown(t *testing.T) {
	t.Parallel()
	w, book := newWorld(t), &forceDeletedRecord{}
	w.options.ForceDeleted = book
	w.restart()
	w.class("small", "")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.Unavailable, "no answer"), EffectDelay: 30 * time.Second})
	w.createMachine("m")
	w.reconcile("m")
	w.step(time.Minute)
	w.restart()
	refusal := provider.Errorf(provider.Unauthenticated, "401")
	w.cloud.OnGet, w.cloud.OnDelete = func(string) error { return refusal }, func(string) error { return refusal }
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.delete("m")
	w.untilGone("m")
	if !slices.Equal(book.left, []string{"m "}) || len(w.cloud.LiveInstances()) != 1 {
		t.Errorf("recorded: %q, instances in the cloud: %d", book.left, len(w.cloud.LiveInstances()))
	}
}

// Rule: force-delete-always-ends.
func TestForceDeleteWaitsForItsRecord(t *testing.T) {
	t.Parallel()
	w, book := newWorld(t), &forceDeletedRecord{err: errors.New("no")}
	w.options.ForceDeleted = book
	w.restart()
	w.class("small", "")
	w.running("m")
	w.cloud.OnDelete = func(string) error { return provider.Errorf(provider.Unauthenticated, "401") }
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.delete("m")
	for range 5 {
		_, _ = w.pass("m")
		w.step(removalPatience)
	}
	if w.get("m") == nil {
		t.Fatal("the machine is gone without a record")
	}
	book.err = nil
	w.untilGone("m")
	if len(book.left) == 0 {
		t.Error("nothing is recorded")
	}
}

// Rule: force-delete-always-ends.
func TestForceDeleteWaitsWhileTheCloudDeletesTheInstance(t *testing.T) {
	t.Parallel()
	w, book := newWorld(t), &forceDeletedRecord{}
	w.options.ForceDeleted = book
	w.cloud.Shutdown = removalPatience - time.Minute
	w.restart()
	w.class("small", "")
	w.running("m")
	w.cloud.Fail("Delete", provider.Errorf(provider.Unavailable, "later"))
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.delete("m")
	w.untilGone("m")
	if len(book.left) != 0 {
		t.Errorf("recorded: %q", book.left)
	}
	w.wantNothingLeft("m")
}

// Rule: force-delete-always-ends.
func TestForceDeleteTriesAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.ForceDeleted = &forceDeletedRecord{}
	w.restart()
	w.class("small", "")
	w.running("m")
	w.cloud.Fail("Delete", provider.Errorf(provider.Unauthenticated, "401"))
	w.delete("m")
	w.reconcile("m")
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rules: force-delete-always-ends, one-try-per-backoff.
func TestForceDeleteRespectsRetryAfter(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.options.ForceDeleted = &forceDeletedRecord{}
	w.restart()
	w.class("small", "")
	w.running("m")
	w.cloud.Fail("Delete", &provider.Error{Code: provider.Throttled, Message: "later", RetryAfter: time.Minute})
	w.delete("m")
	w.reconcile("m")
	w.annotate("m", v1beta1.AnnotationForceDelete)
	w.step(30 * time.Second)
	w.effects.clear()
	w.reconcile("m")
	if calls := w.effects.calls(); len(calls) > 0 {
		t.Errorf("driver calls: %q", calls)
	}
	w.step(30 * time.Second)
	w.reconcile("m")
	w.wantNothingLeft("m")
}
