package migration

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: migration-abort-names-what-stops-it.
func TestBlockReasonNamesWhatKeepsAnObject(t *testing.T) {
	deleted := func(finalizers ...string) metav1.ObjectMeta {
		now := metav1.Now()
		return metav1.ObjectMeta{Name: "a", DeletionTimestamp: &now, Finalizers: finalizers}
	}
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}}
	class.Spec.UserDataRef = &v1beta1.UserDataRef{Name: "a"}
	ofClass := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	ofClass.Spec.ClassRef = &v1beta1.LocalRef{Name: "a"}
	inline := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "two"}}
	inline.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "a"}
	of := func(classes []*v1beta1.MachineClass, machines ...*v1beta1.Machine) *ownObjects {
		o := &ownObjects{classes: map[string]*v1beta1.MachineClass{}, machines: map[string]*v1beta1.Machine{}}
		for _, c := range classes {
			o.classes[c.Name] = c
		}
		for _, m := range machines {
			o.machines[m.Name] = m
		}
		return o
	}
	for _, c := range []struct {
		what   string
		own    *ownObjects
		object client.Object
		want   string
	}{
		{"a finalizer of another controller", of(nil, ofClass),
			&v1beta1.MachineClass{ObjectMeta: deleted(v1beta1.InUseFinalizer, "example.com/keep")},
			"the finalizers example.com/keep remain. Find out which controllers must remove them"},
		{"a class that a Machine uses", of(nil, ofClass, inline),
			&v1beta1.MachineClass{ObjectMeta: deleted(v1beta1.InUseFinalizer)},
			"Machine one uses it. Change that object to use another one, or delete that object"},
		{"a Secret that a class uses", of([]*v1beta1.MachineClass{class}, ofClass),
			&corev1.Secret{ObjectMeta: deleted(v1beta1.InUseFinalizer)},
			"MachineClass theirs uses it. Change that object to use another one, or delete that object"},
		{"a Secret that a Machine uses", of(nil, ofClass, inline),
			&corev1.Secret{ObjectMeta: deleted(v1beta1.InUseFinalizer)},
			"Machine two uses it. Change that object to use another one, or delete that object"},
		{"nothing", of(nil), &corev1.Secret{ObjectMeta: deleted(v1beta1.InUseFinalizer)},
			"the process of provider sim has not released it. Check that the process runs and leads"},
	} {
		if got := blockReason(c.own, c.object, "sim"); got != c.want {
			t.Errorf("%s: %q, expected %q", c.what, got, c.want)
		}
	}
}

// The abort must delete a Secret that the migration created, but a class of another owner also refers to this Secret.
// The provider keeps its finalizer on the Secret until this class is deleted.
//
// Rules: migration-abort-names-what-stops-it, migration-waits-longer.
func TestAbortReportsWhatBlocksIt(t *testing.T) {
	l := newJourney(t)
	l.adoptedFleet()
	var secret *corev1.Secret
	for _, o := range l.ownObjects() {
		if s, is := o.(*corev1.Secret); is {
			secret = s
		}
	}
	l.must(l.admin.Patch(l.ctx, secret, merge(`{"metadata":{"finalizers":["`+v1beta1.InUseFinalizer+`"]}}`)))
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: l.key.Namespace, Name: "theirs"}}
	class.Spec.Provider, class.Spec.ProviderSpec = "another", &runtime.RawExtension{Raw: []byte(`{"kind":"Another"}`)}
	class.Spec.CredentialsRef = &v1beta1.LocalRef{Name: secret.Name}
	l.must(l.admin.Create(l.ctx, class))
	l.stage(v1beta1.MigrationAbort)
	want := "Secret " + secret.Name + " is being deleted, but still exists: MachineClass theirs uses it."
	eventually(l, "the abort names the class", func() bool {
		return strings.Contains(strings.Join(l.pass().Status.Troubles, "\n"), want)
	})
	var last time.Duration
	for range 15 {
		result, err := l.r.Reconcile(l.ctx, reconcile.Request{NamespacedName: l.key})
		l.must(err)
		if result.RequeueAfter < last || result.RequeueAfter > maxRetryInterval {
			t.Errorf("nothing has changed for %s, and the next pass is in %s", last, result.RequeueAfter)
		}
		last = result.RequeueAfter
		l.clock.Step(last)
	}
	if last != maxRetryInterval {
		t.Errorf("the abort is retried every %s, expected %s", last, maxRetryInterval)
	}
	l.must(l.admin.Delete(l.ctx, class))
	l.must(client.IgnoreNotFound(l.admin.Patch(l.ctx, secret, merge(`{"metadata":{"finalizers":null}}`))))
	l.pass()
	l.runUntil(v1beta1.MigrationAborted)
	l.cleanOld()
}

// Rule: migration-waits-longer.
func TestRequeueDelayGrowsWhileTroublesDoNotChange(t *testing.T) {
	clock := testclock.NewFakeClock(time.Now())
	p := &pass{Reconciler: New(Options{Clock: clock, Timing: DefaultTiming}), migration: &v1beta1.Migration{},
		requeueAfter: DefaultTiming.Poll, troubleCount: 1}
	for range 10 {
		clock.Step(p.requeueDelay(false))
	}
	if next := p.requeueDelay(false); next != maxRetryInterval {
		t.Errorf("if nothing changes, the next pass is in %s, expected %s", next, maxRetryInterval)
	}
	if next := p.requeueDelay(true); next != DefaultTiming.Poll {
		t.Errorf("if something has changed, the next pass is in %s, expected %s", next, DefaultTiming.Poll)
	}
	p.troubleCount = 0
	if next := p.requeueDelay(false); next != DefaultTiming.Poll {
		t.Errorf("without troubles, the next pass is in %s, expected %s", next, DefaultTiming.Poll)
	}
}
