package machineclass

import (
	"context"
	"fmt"
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/test/env"
	"machinist.dev/machinist/test/env/inmemory"
)

func TestMain(m *testing.M) { os.Exit(inmemory.Main(m)) }

// testControllers runs the controllers of one provider on the in-memory API server. The test's namespace is the
// provider's name.
type testControllers struct {
	*testing.T
	client.WithWatch
	ns     string
	driver *scripted
}

func newTestControllers(t *testing.T) *testControllers {
	t.Helper()
	w := &testControllers{T: t, WithWatch: env.Client(t), ns: env.Namespace(t)}
	w.driver = &scripted{name: w.ns}
	env.Manager(t, func(ctx context.Context, mgr manager.Manager) error {
		if err := index.RegisterMachines(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		if err := resolve.RegisterIndexes(ctx, mgr.GetFieldIndexer()); err != nil {
			return err
		}
		return New(Options{
			Driver: w.driver, Client: mgr.GetClient(), LiveClient: w.WithWatch,
			Recorder: mgr.GetEventRecorder("machineclass"), Clock: clock.RealClock{},
		}).Register(mgr)
	})
	return w
}

func (w *testControllers) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.ns, Name: name}
}

func (w *testControllers) create(o client.Object) {
	w.Helper()
	if err := w.Create(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *testControllers) createSecret(name, key, value string) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: w.meta(name), StringData: map[string]string{key: value}}
	secret.Labels = map[string]string{v1beta1.LabelSecretUse: v1beta1.SecretUseBoth}
	w.create(secret)
}

func (w *testControllers) createSecrets() {
	w.Helper()
	w.createSecret("creds", "token", "t")
	w.createSecret("boot", "userData", "#cloud-config")
}

func (w *testControllers) createClass(name string, changes ...func(*v1beta1.MachineClass)) {
	w.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: w.meta(name), Spec: v1beta1.MachineClassSpec{
		Provider: w.ns, ProviderSpec: &runtime.RawExtension{Raw: []byte(`{"a":1}`)},
		CredentialsRef: &v1beta1.LocalRef{Name: "creds"}, UserDataRef: &v1beta1.UserDataRef{Name: "boot"},
	}}
	for _, change := range changes {
		change(class)
	}
	w.create(class)
}

func (w *testControllers) createMachine(name, class string) {
	w.Helper()
	w.create(&v1beta1.Machine{ObjectMeta: w.meta(name),
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: class}}})
}

func (w *testControllers) remove(o client.Object, name string) {
	w.Helper()
	o.SetNamespace(w.ns)
	o.SetName(name)
	if err := w.Delete(w.Context(), o); err != nil {
		w.Fatal(err)
	}
}

func (w *testControllers) patchClass(name, patch string) {
	w.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: w.meta(name)}
	if err := w.Patch(w.Context(), class, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

func (w *testControllers) patchSecret(name, patch string) {
	w.Helper()
	secret := &corev1.Secret{ObjectMeta: w.meta(name)}
	if err := w.Patch(w.Context(), secret, client.RawPatch("application/merge-patch+json", []byte(patch))); err != nil {
		w.Fatal(err)
	}
}

func (w *testControllers) awaitReady(name, reason string) *v1beta1.MachineClass {
	w.Helper()
	var found *v1beta1.MachineClass
	env.Await(w, w.WithWatch, &v1beta1.MachineClassList{}, name+" to be "+
		reason, func(l *v1beta1.MachineClassList) (bool, string) {
		for i := range l.Items {
			if c := &l.Items[i]; c.Name == name {
				ready := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionReady)
				found = c
				return ready != nil && ready.Reason == reason, fmt.Sprintf("%+v", ready)
			}
		}
		return false, "no such class"
	}, client.InNamespace(w.ns))
	return found
}

func (w *testControllers) awaitClass(name, what string, is func(*v1beta1.MachineClass) bool) {
	w.Helper()
	env.Await(w, w.WithWatch, &v1beta1.MachineClassList{}, name+" "+
		what, func(l *v1beta1.MachineClassList) (bool, string) {
		for i := range l.Items {
			if l.Items[i].Name == name {
				return is(&l.Items[i]), fmt.Sprintf("%v %+v", l.Items[i].Finalizers, l.Items[i].Status)
			}
		}
		return is(nil), "no such class"
	}, client.InNamespace(w.ns))
}

func (w *testControllers) awaitSecret(name, what string, is func(*corev1.Secret) bool) {
	w.Helper()
	env.Await(w, w.WithWatch, &corev1.SecretList{}, name+" "+what, func(l *corev1.SecretList) (bool, string) {
		for i := range l.Items {
			if l.Items[i].Name == name {
				return is(&l.Items[i]), fmt.Sprint(l.Items[i].Finalizers)
			}
		}
		return is(nil), "no such Secret"
	}, client.InNamespace(w.ns))
}

func (w *testControllers) secretProtected(name string) bool {
	w.Helper()
	secret := &corev1.Secret{}
	if err := w.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, secret); err != nil {
		w.Fatal(err)
	}
	return protected(secret)
}

func (w *testControllers) eventsOf(reason string) (count int) {
	w.Helper()
	env.Await(w, w.WithWatch, &eventsv1.EventList{}, "an event "+reason, func(l *eventsv1.EventList) (bool, string) {
		count = 0
		for _, e := range l.Items {
			if e.Reason == reason {
				count++
				if e.Series != nil {
					count += int(e.Series.Count) - 1
				}
			}
		}
		return count > 0, fmt.Sprintf("%d events", len(l.Items))
	}, client.InNamespace(w.ns))
	return count
}
