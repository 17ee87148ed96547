package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/fakecloud"
)

type liveReads struct{ of []string }

func (a *liveReads) take() []string {
	taken := a.of
	a.of = nil
	return taken
}

func (a *liveReads) note(verb string, object any) {
	kind := strings.TrimPrefix(fmt.Sprintf("%T", object), "*v1beta1.")
	if metadata, ok := object.(*metav1.PartialObjectMetadata); ok {
		kind = metadata.Kind
	}
	a.of = append(a.of, verb+" "+kind)
}

// startWatching starts a process whose cache is always up to date. MachineCacheVersion returns the latest resource
// version.
func (w *world) startWatching() *liveReads {
	a := &liveReads{}
	w.options.LiveReader = a.listen(w.options.LiveReader.(client.WithWatch))
	target := *w.options.Target
	target.LiveClient = a.listen(target.LiveClient.(client.WithWatch))
	w.options.Target = &target
	w.options.MachineCacheVersion = func() string {
		list := &v1beta1.MachineList{}
		if err := w.api.List(w.t.Context(), list, client.InNamespace(w.namespace)); err != nil {
			w.t.Error(err)
		}
		return list.ResourceVersion
	}
	w.restart()
	return a
}

func (a *liveReads) listen(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object,
			opts ...client.GetOption) error {
			a.note("get", o)
			return c.Get(ctx, key, o, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			a.note("list", list)
			return c.List(ctx, list, opts...)
		},
	})
}

// Rules: no-create-from-stale-view, launch-needs-protected-inputs, token-only-on-request.
func TestLiveReadsOnlyOfWhatAnotherProcessMayHaveChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	a := w.startWatching()

	w.createMachine("before")
	w.reconcile("before")
	want(t, "live reads for a machine that existed before", a.take(), "list MachineList", "get Machine", "get MachineClass")
	w.node("before", true)
	w.reconcile("before")
	want(t, "live reads when it runs", a.take(), "get Secret")

	w.createMachine("after")
	w.reconcile("after")
	w.node("after", true)
	w.reconcile("after")
	w.wantPhase(w.get("after"), v1beta1.MachineRunning)
	want(t, "live reads for a machine that was created later", a.take())

	w.createMachine("placed", func(m *v1beta1.Machine) {
		m.Labels = map[string]string{v1beta1.LabelPlacementDomain: "zone-a"}
	})
	w.reconcile("placed")
	want(t, "live reads for a machine whose set may change its class", a.take(), "get Machine")

	w.createMachine("slow")
	w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.DeadlineExceeded, "no answer")})
	w.step(w.reconcile("slow").RequeueAfter)
	want(t, "live reads before the first call", a.take())
	w.reconcile("slow")
	want(t, "live reads before the second call", a.take(), "get Machine")

	w.restart()
	w.createMachine("next")
	w.reconcile("next")
	want(t, "live reads by the next process", a.take(), "list MachineList", "get Machine", "get MachineClass")
}

// Rule: launch-needs-protected-inputs.
func TestClassWithTheSameNameIsReadAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	a := w.startWatching()
	w.createMachine("a")
	w.reconcile("a")
	a.take()
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	w.removeFinalizers(class)
	w.deleteObject(class)
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}}
	w.removeFinalizers(credentials)
	w.deleteObject(credentials)
	w.class("small", "")
	w.createMachine("b")
	w.reconcile("b")
	if got := a.take(); !slices.Contains(got, "get MachineClass") {
		t.Errorf("live reads: %q", got)
	}
}

// Rule: token-only-on-request.
func TestCreatedTokenIsDeleted(t *testing.T) {
	t.Parallel()
	for name, run := range map[string]func(w *world){
		"requested by the last attempt": func(w *world) {
			w.createMachine("m")
			w.reconcile("m")
		},
		"requested only at first": func(w *world) {
			w.cloud.Script("Create", fakecloud.Step{Err: provider.Errorf(provider.ResourceExhausted, "none left")})
			w.createMachine("m")
			w.step(w.reconcile("m").RequeueAfter + time.Minute)
			w.setSecret("small-user-data", "userData", "no more")
			w.reconcile("m")
		},
	} {
		w := newWorld(t)
		w.class("small", joinsWithToken)
		w.startWatching()
		w.createMachine("first")
		w.reconcile("first")
		run(w)
		if n := len(w.tokens()); n != 2 {
			t.Errorf("%s: %d tokens, want 2", name, n)
		}
		w.node("m", true)
		w.reconcile("m")
		w.wantPhase(w.get("m"), v1beta1.MachineRunning)
		if n := len(w.tokens()); n != 1 {
			t.Errorf("%s: %d tokens remain, want only that of the other machine", name, n)
		}
	}
}
