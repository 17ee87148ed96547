package machine

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
)

// The waits for finalizers are usually so short that the status does not report them.
//
// Rule: launch-needs-protected-inputs.
func TestLaunchWaitsForProtectedClassAndCredentials(t *testing.T) {
	t.Parallel()
	for what, loose := range map[string]func(w *world) client.Object{
		`MachineClass "small"`: func(w *world) client.Object {
			return &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
		},
		`Secret "small-credentials"`: func(w *world) client.Object {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}}
		},
	} {
		w := newWorld(t)
		w.class("small", "")
		o := loose(w)
		w.removeFinalizers(o)
		w.createMachine("m")
		if again := w.wantQuiet("m").RequeueAfter; again != silentWait {
			t.Errorf("%s: checks again after %s", what, again)
		}
		w.step(silentWait)
		w.reconcile("m")
		m := w.get("m")
		w.wantCondition(m, v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonPending)
		if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); !strings.Contains(c.Message, what) {
			t.Errorf("the message %q does not name %s", c.Message, what)
		}
		want(t, what+": driver calls", w.effects.calls())
		w.hold(o)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
	}
}

// The cache still shows the class with the finalizer that was removed.
//
// Rule: launch-needs-protected-inputs.
func TestLateCacheDoesNotLaunchWithAnUnprotectedClass(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(w *world, class *v1beta1.MachineClass){
		"finalizer removed": func(w *world, class *v1beta1.MachineClass) { w.removeFinalizers(class) },
		"being deleted":     func(w *world, class *v1beta1.MachineClass) { w.deleteObject(class) },
		"gone":              func(w *world, class *v1beta1.MachineClass) { w.removeFinalizers(class); w.deleteObject(class) },
	} {
		w := newWorld(t)
		w.class("small", "")
		class := &v1beta1.MachineClass{}
		if err := w.api.Get(t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "small"}, class); err != nil {
			t.Fatal(err)
		}
		resolver := *w.options.Classes.(*resolve.Resolver)
		resolver.Classes = lateClass{resolver.Classes, class.DeepCopy()}
		w.options.Classes = &resolver
		w.restart()
		change(w, class)
		w.createMachine("m")
		if w.wantQuiet("m").RequeueAfter == 0 {
			t.Errorf("%s: no further pass is scheduled", name)
		}
		want(t, name+": driver calls", w.effects.calls())
	}
}

type lateClass struct {
	client.Reader
	class *v1beta1.MachineClass
}

func (l lateClass) Get(ctx context.Context, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
	if class, ok := o.(*v1beta1.MachineClass); ok {
		l.class.DeepCopyInto(class)
		return nil
	}
	return l.Reader.Get(ctx, key, o, options...)
}

func (w *world) deleteObject(o client.Object) {
	w.t.Helper()
	if err := w.api.Delete(w.t.Context(), o); err != nil {
		w.t.Fatal(err)
	}
}
