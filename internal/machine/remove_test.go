package machine

import (
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

// Rule: deletion-order.
func TestHooksBlockTheDeletionInTheirOrder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m", func(m *v1beta1.Machine) {
		m.Spec.LifecycleHooks.PreDrain = []v1beta1.LifecycleHook{{Name: "backup.example.com", Owner: "backup"}}
		m.Spec.LifecycleHooks.PreTerminate = []v1beta1.LifecycleHook{{Name: "audit.example.com", Owner: "audit"}}
	})
	w.delete("m")
	w.reconcile("m")
	m := w.get("m")
	w.wantPhase(m, v1beta1.MachineDeleting)
	c := w.wantCondition(m, v1beta1.ConditionDeleting, "True", v1beta1.ReasonWaitingForPreDrainHook)
	if !strings.Contains(c.Message, "backup.example.com (owned by backup)") {
		t.Errorf("message is %q", c.Message)
	}
	w.wantRest("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.LifecycleHooks.PreDrain = nil })
	w.effects.clear()
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonWaitingForPreTerminateHook)
	want(t, "effects", w.effects.since(), "API Node patch", "API Machine patch status")
	w.wantRest("m")
	w.update("m", func(m *v1beta1.Machine) { m.Spec.LifecycleHooks.PreTerminate = nil })
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule: paused-machine-untouched.
func TestPausedDeletionDoesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("m")
	w.annotate("m", v1beta1.AnnotationClusterAPIPaused)
	w.delete("m")
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonPausedByAnnotation)
	w.wantRest("m")
	w.update("m", func(m *v1beta1.Machine) { delete(m.Annotations, v1beta1.AnnotationClusterAPIPaused) })
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Rule: finalizer-after-instance.
func TestTheNodeOfAnotherInstanceIsNotDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.running("m")
	w.dropNode(m)
	w.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Status.NodeRef.Name}})
	w.delete("m")
	w.reconcile("m")
	if w.get("m") != nil {
		t.Errorf("the machine still exists: %s", summaryOf(w.get("m")))
	}
	if w.getNode(m.Status.NodeRef.Name) == nil {
		t.Error("a node that only has the name of the machine's node was deleted")
	}
}

// Rules: finalizer-after-instance, deletion-never-gives-up.
func TestErrorsOfDelete(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		code   provider.Code
		reason string
		low    time.Duration
	}{
		{provider.InvalidArgument, v1beta1.ReasonDeleteError, 30 * time.Second},
		{provider.FailedPrecondition, v1beta1.ReasonDeleteError, 30 * time.Second},
		{provider.Unauthenticated, v1beta1.ReasonCredentialsRefused, 30 * time.Second},
		{provider.Unavailable, v1beta1.ReasonProviderUnavailable, time.Second},
		{provider.Throttled, v1beta1.ReasonProviderUnavailable, time.Minute},
		{provider.NotFound, v1beta1.ReasonDeleteError, time.Second},
		{provider.Unknown, v1beta1.ReasonDeleteError, time.Second},
	} {
		t.Run(string(tc.code), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", "")
			w.running("m")
			w.events.take()
			failure := provider.Errorf(tc.code, "no")
			if tc.code == provider.Throttled {
				failure.RetryAfter = time.Minute
			}
			w.cloud.Fail("Delete", failure, failure, failure)
			w.delete("m")
			last := time.Duration(0)
			for n := range 3 {
				wait := w.reconcile("m").RequeueAfter
				within(t, "the wait", wait, max(tc.low, last), 10*time.Minute)
				last = wait
				m := w.get("m")
				w.wantCondition(m, v1beta1.ConditionDeleting, "True", tc.reason)
				w.wantPhase(m, v1beta1.MachineDeleting)
				if o := m.Status.LastOperation; o.Type != v1beta1.OperationDelete || o.Code != string(tc.code) ||
					o.Attempts != int32(n)+1 {
					t.Errorf("lastOperation is %+v", o)
				}
				w.step(wait)
			}
			w.reconcile("m")
			want(t, "events", reasons(w.events.take()), tc.reason, "Deleted")
			w.wantNothingLeft("m")
		})
	}
}

// The status contains everything that the deletion needs, except the credentials.
//
// Rule: deletion-without-class.
func TestDeletionWithoutTheClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "x")
	w.running("m")
	w.events.take()
	w.drop("small-user-data")
	w.drop("small-credentials")
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	w.removeFinalizers(class)
	if err := w.api.Delete(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	w.delete("m")
	w.effects.clear()
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonCredentialsNotFound)
	want(t, "events", reasons(w.events.take()), v1beta1.ReasonCredentialsNotFound)
	if wait := w.wantQuiet("m").RequeueAfter; wait == 0 {
		t.Error("no pass is scheduled to check for the Secret")
	}
	w.create(w.secret("small-credentials", "token", "again"))
	w.reconcile("m")
	want(t, "events", reasons(w.events.take()), "Deleted")
	w.wantNothingLeft("m")
}

// If the class of a machine never existed, no instance was ever requested.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestMachineWithoutAClassIsDeletedAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.createMachine("m", func(m *v1beta1.Machine) { delete(m.Labels, v1beta1.LabelProvider) })
	w.reconcile("m")
	w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, "False", v1beta1.ReasonClassNotFound)
	w.delete("m")
	w.reconcile("m")
	want(t, "driver calls", w.effects.calls())
	w.wantNothingLeft("m")
}

// The cloud may still show an instance later. Two checks must find nothing, and the time between them must be at least
// the settle time.
//
// Rule: unrecorded-instance-looked-up-twice.
func TestDeletionBeforeTheInstanceIsKnownWaitsForItToShow(t *testing.T) {
	t.Parallel()
	lost := provider.Errorf(provider.DeadlineExceeded, "no answer")
	for _, tc := range []struct {
		name   string
		before func(*world)
		low    time.Duration
	}{
		{"never requested", func(w *world) {}, time.Minute},
		{"the instance never appears", func(w *world) { w.cloud.Fail("Create", lost); w.reconcile("m") }, time.Minute},
		{"the instance is created late", func(w *world) {
			w.cloud.Script("Create", fakecloud.Step{Err: lost, EffectDelay: 50 * time.Second})
			w.reconcile("m")
		}, time.Minute},
		{"the instance shows late", func(w *world) {
			w.cloud.TagLookupDelay = 50 * time.Second
			w.cloud.Script("Create", fakecloud.Step{Err: lost, EffectDelay: time.Nanosecond})
			w.reconcile("m")
		}, time.Minute},
		{"the instance shows at once and is removed slowly", func(w *world) {
			w.cloud.Shutdown = 5 * time.Minute
			w.cloud.Script("Create", fakecloud.Step{Err: lost, EffectDelay: time.Nanosecond})
			w.reconcile("m")
			w.step(time.Second)
		}, 5 * time.Minute},
		{"a check fails", func(w *world) {
			w.cloud.Fail("Delete", nil, provider.Errorf(provider.Unavailable, "no"))
		}, time.Minute},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.class("small", joinsWithToken)
			w.createMachine("m")
			tc.before(w)
			w.delete("m")
			began := w.clock.Now()
			w.untilGone("m")
			within(t, "the time until the machine was gone", w.clock.Since(began), tc.low, tc.low+time.Minute)
			w.wantNothingLeft("m")
			w.step(time.Hour)
			if n := len(w.cloud.LiveInstances()); n > 0 {
				t.Errorf("%d instances appeared after the machine was gone", n)
			}
		})
	}
}

// Rule: unrecorded-instance-looked-up-twice.
func TestDeletionDuringCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", joinsWithToken)
	w.createMachine("m")
	w.cloud.Script("Create", fakecloud.Step{During: func() { w.delete("m") }})
	if result := w.reconcile("m"); result.RequeueAfter == 0 || len(w.cloud.LiveInstances()) != 1 {
		t.Errorf("%d instances, next check after %s", len(w.cloud.LiveInstances()), result.RequeueAfter)
	}
	w.untilGone("m")
	w.wantNothingLeft("m")
}

// A clock that is moved by days must not cause a failure, a busy loop or a second instance.
func TestClockJumpsAreHarmless(t *testing.T) {
	t.Parallel()
	w := newWorld(t, joining)
	w.class("small", joinsWithToken)
	const day = 24 * time.Hour
	for name, jumps := range map[string][3]time.Duration{"back": {-day, -day, -day}, "forward": {0, day, day},
		"back-and-forth": {-day, 3 * day, -2 * day}} {
		w.createMachine(name)
		w.step(jumps[0])
		m := w.untilPhase(name, v1beta1.MachineRunning)
		created := len(w.cloud.Requests())
		w.step(jumps[1])
		w.reconcile(name)
		if w.wantRest(name); len(w.cloud.Requests()) != created || m.Spec.ProviderID != w.get(name).Spec.ProviderID {
			t.Errorf("%s: another instance was created", name)
		}
		w.delete(name)
		w.reconcile(name)
		w.step(jumps[2])
		w.untilGone(name)
		w.wantNothingLeft(name)
	}
}

func TestDeletionDoesNotWaitWithoutASettleTime(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cloud.Settle = 0
	w.class("small", "")
	w.createMachine("m")
	w.delete("m")
	w.reconcile("m")
	w.wantNothingLeft("m")
}

// Without the target cluster, the controller does not know which pods the deletion would kill.
//
// Rule: failed-read-proves-nothing.
func TestDeletionWhileTheTargetClusterIsUnreachable(t *testing.T) {
	t.Parallel()
	t.Run("waits", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.running("m")
		w.delete("m")
		w.targetDown = true
		if _, err := w.pass("m"); err == nil {
			t.Error("the pass reports no error to retry on")
		}
		w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetUnreachable)
		if len(w.cloud.LiveInstances()) != 1 {
			t.Error("the instance was deleted")
		}
		w.targetDown = false
		w.reconcile("m")
		w.wantNothingLeft("m")
	})
	t.Run("continues without a node", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", joinsWithToken)
		w.createMachine("m")
		w.reconcile("m")
		w.delete("m")
		w.refuse = func(_ string, o runtime.Object) error {
			if secret, ok := o.(*metav1.PartialObjectMetadata); ok && secret.Namespace != w.namespace {
				return errors.New("not now")
			}
			return nil
		}
		if _, err := w.pass("m"); err == nil {
			t.Error("one failed call counts as an outage")
		}
		w.step(30 * time.Second)
		w.reconcile("m")
		if w.get("m") != nil || len(w.cloud.LiveInstances()) != 0 {
			t.Error("the machine or the instance remains")
		}
	})
	t.Run("does not ignore an existing node that is not recorded yet", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.createMachine("m")
		w.reconcile("m")
		w.node("m", true)
		w.refuseNodes("patch")
		if _, err := w.pass("m"); err == nil || w.get("m").Status.NodeRef != nil {
			t.Fatalf("the pass ends with %v, and the node is %v", err, w.get("m").Status.NodeRef)
		}
		w.delete("m")
		for range 3 {
			if _, err := w.pass("m"); err == nil || w.get("m") == nil {
				t.Fatalf("the pass ends with %v; the machine is %v", err, w.get("m"))
			}
			w.step(targetPatience)
		}
		w.refuse = nil
		w.reconcile("m")
		w.wantNothingLeft("m")
	})
	t.Run("continues when forced and reports what remains", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t)
		w.class("small", "")
		w.running("m")
		w.events.take()
		w.annotate("m", v1beta1.AnnotationForceDelete)
		w.delete("m")
		w.targetDown = true
		if _, err := w.pass("m"); err == nil {
			t.Error("one failed call counts as an outage")
		}
		if len(w.cloud.LiveInstances()) != 0 {
			t.Error("the instance remains")
		}
		w.wantCondition(w.get("m"), v1beta1.ConditionDeleting, "True", v1beta1.ReasonTargetUnreachable)
		w.step(time.Minute)
		w.reconcile("m")
		if w.get("m") != nil {
			t.Error("the machine remains")
		}
		if events := w.events.take(); len(events) != 1 || !strings.Contains(events[0], "may remain in it") {
			t.Errorf("events: %q", events)
		}
	})
	t.Run("leaves nothing behind when forced in a short outage", func(t *testing.T) {
		t.Parallel()
		for name, fail := range map[string]func(*world){
			"all calls":            func(w *world) { w.targetDown = true },
			"deletion of the node": func(w *world) { w.refuseNodes("delete") },
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.class("small", "")
				w.running("m")
				w.annotate("m", v1beta1.AnnotationForceDelete)
				w.delete("m")
				fail(w)
				if _, err := w.pass("m"); err == nil || w.get("m") == nil {
					t.Errorf("the pass ends with %v; the machine is %v", err, w.get("m"))
				}
				w.step(30 * time.Second)
				w.targetDown, w.refuse = false, nil
				w.reconcile("m")
				w.wantNothingLeft("m")
			})
		}
	})
}

// refuseNodes returns an error for each request of the given verb for Nodes. The verb of a read is "".
func (w *world) refuseNodes(verb string) {
	w.refuse = func(v string, o runtime.Object) error {
		switch o.(type) {
		case *corev1.Node, *corev1.NodeList:
			if v == verb {
				return errors.New("not now")
			}
		}
		return nil
	}
}

func TestTokensOfMachinesThatNeverRanAreDeletedWithThem(t *testing.T) {
	t.Parallel()
	for _, registered := range []bool{false, true} {
		w := newWorld(t)
		w.class("small", joinsWithToken)
		w.createMachine("m")
		w.reconcile("m")
		if registered {
			w.node("m", false)
			w.step(w.reconcile("m").RequeueAfter)
			w.reconcile("m")
			w.wantCondition(w.get("m"), v1beta1.ConditionRegistered, "True", v1beta1.ReasonNodeRegistered)
		}
		w.delete("m")
		w.untilGone("m")
		w.wantNothingLeft("m")
	}
}

// Rule: finalizer-after-instance.
func TestFinalizersOfOthersStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.running("held", func(m *v1beta1.Machine) { m.Finalizers = append(m.Finalizers, "example.com/hold") })
	w.delete("held")
	w.reconcile("held")
	if m := w.get("held"); m == nil || hasFinalizer(m) || len(m.Finalizers) != 1 {
		t.Errorf("the machine is %v", m)
	}
	w.wantRest("held")
}

func TestAMachineThatLostItsFinalizerIsForgotten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.cloud.Fail("Create", provider.Errorf(provider.Throttled, "slow down"))
	w.createMachine("m")
	w.reconcile("m")
	w.update("m", func(m *v1beta1.Machine) { m.Finalizers = nil })
	w.delete("m")
	w.reconcile("m")
	if w.process.states.machines.Len() > 0 {
		t.Error("the process remembers a machine that is gone")
	}
}
