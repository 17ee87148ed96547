package machine

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/class/machineclass/resolve"
	"machinist.dev/machinist/pkg/provider"
)

// deleteClass requests the deletion of the class "small". It also records the decision about the Machines of the class,
// as the class controller would.
func (w *world) deleteClass(reason string) {
	w.t.Helper()
	class := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}}
	w.deleteObject(class)
	w.decideClass(reason)
}

func (w *world) decideClass(reason string) {
	w.t.Helper()
	class := &v1beta1.MachineClass{}
	if err := w.api.Get(w.t.Context(), client.ObjectKey{Namespace: w.namespace, Name: "small"}, class); err != nil {
		w.t.Fatal(err)
	}
	meta.SetStatusCondition(&class.Status.Conditions, metav1.Condition{Type: v1beta1.ConditionDeleting,
		Status: metav1.ConditionTrue, Reason: reason, Message: "m"})
	if err := w.api.Status().Update(w.t.Context(), class); err != nil {
		w.t.Fatal(err)
	}
}

// Rules: launch-needs-protected-inputs, class-deletion-is-decided.
func TestAClassThatIsBeingDeletedServesWhileItIsInUse(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.deleteClass(v1beta1.ReasonDeletionStarted)
	w.createMachine("m")
	w.reconcile("m")
	want(t, "driver calls before it is decided", w.effects.calls())
	w.decideClass(v1beta1.ReasonInUse)
	w.reconcile("m")
	w.wantPhase(w.get("m"), v1beta1.MachineProvisioned)
}

// The machine releases its class even if other inputs of the launch are missing.
//
// Rules: launch-needs-protected-inputs, class-deletion-is-decided.
func TestMachineReleasesAClassThatStoppedServing(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1beta1.Machine){
		"created by a set": func(*v1beta1.Machine) {},
		"paused":           func(m *v1beta1.Machine) { m.Annotations = map[string]string{v1beta1.AnnotationPaused: ""} },
		"refused": func(m *v1beta1.Machine) {
			m.Spec.Node.Labels = map[string]string{v1beta1.NodeLabelMachine: "x"}
		},
	} {
		w := newWorld(t)
		w.options.MachineCacheVersion = func() string { return "999999999" }
		w.restart()
		w.class("small", "")
		w.createMachine("first")
		w.reconcile("first") // From now on this process knows which machines no other process has launched.
		w.deleteClass(v1beta1.ReasonWithdrawn)
		w.removeFinalizers(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}})
		w.deleteObject(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small-credentials"}})
		w.createMachine("m", change)
		w.effects.clear()
		w.reconcile("m")
		w.wantCondition(w.get("m"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonClassDeleting)
		want(t, name+": driver calls", w.effects.calls())
		if !resolve.ReleasesClass(w.get("m")) {
			t.Errorf("%s: the machine still holds the class", name)
		}
		w.wantRest("m")
	}
}

// An earlier process may have requested an instance.
//
// Rule: class-deletion-is-decided.
func TestAMachineHoldsItsClassWhileAnInstanceMayShow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.deleteClass(v1beta1.ReasonWithdrawn)
	w.createMachine("m")
	settle := w.cloud.CreateSettle()
	if again := w.reconcile("m").RequeueAfter; again <= 0 || again > settle || resolve.ReleasesClass(w.get("m")) {
		t.Errorf("checks again after %s; released: %t", again, resolve.ReleasesClass(w.get("m")))
	}
	w.step(settle)
	w.reconcile("m")
	if !resolve.ReleasesClass(w.get("m")) {
		t.Errorf("the machine still holds the class: %+v", w.get("m").Status)
	}
}

// The process was killed before it received the answer of Create, and the class was deleted in the meantime.
//
// Rule: class-deletion-is-decided.
func TestInstanceOfALostCreateHoldsItsClass(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	m := w.createMachine("m")
	if _, err := w.cloud.Create(t.Context(), provider.CreateRequest{Machine: identity(m), ClusterID: "cluster",
		Token: string(m.UID) + "-1", Tags: map[string]string{provider.TagCluster: "cluster",
			provider.TagMachineUID: string(m.UID), provider.TagMachine: client.ObjectKeyFromObject(m).String()}}); err != nil {
		t.Fatal(err)
	}
	w.deleteClass(v1beta1.ReasonWithdrawn)
	w.reconcile("m")
	if got := w.get("m"); got.Spec.ProviderID == "" || resolve.ReleasesClass(got) {
		t.Errorf("the instance was not found: %+v", got.Status)
	}
}

// The machine is launched from a new class with the same name as its deleted class. The status must show that the
// machine holds the new class before Create is called, in case the process is killed during the call.
//
// Rule: class-deletion-is-decided.
func TestAMachineHoldsItsNewClassBeforeTheCloudIsCalled(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.class("small", "")
	w.deleteClass(v1beta1.ReasonWithdrawn)
	w.createMachine("m")
	w.reconcile("m")
	w.step(w.cloud.CreateSettle())
	w.reconcile("m")
	w.removeFinalizers(&v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small"}})
	again := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: w.namespace, Name: "small",
		Finalizers: []string{v1beta1.InUseFinalizer}}}
	again.Spec.Provider, again.Spec.ProviderSpec = w.cloud.ProviderName, &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}
	w.create(again)
	heldBefore := false
	w.cloud.WrapCall = func(what string, call func() error) error {
		heldBefore = heldBefore || !resolve.ReleasesClass(w.get("m"))
		return call()
	}
	w.step(time.Minute)
	w.reconcile("m")
	if w.get("m").Spec.ProviderID == "" || !heldBefore {
		t.Errorf("launched: %t, held before: %t", w.get("m").Spec.ProviderID != "", heldBefore)
	}
}

// A Secret without the finalizer may disappear at any moment, and is not used.
//
// Rule: launch-needs-protected-inputs.
func TestInlineCredentialsServeWhileProtected(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	secret := w.secret("going", "token", "hunter2")
	secret.Finalizers = []string{v1beta1.InUseFinalizer, "example.com/other"}
	w.create(secret)
	w.deleteObject(secret)
	inline := func(m *v1beta1.Machine) {
		m.Spec.ClassRef, m.Spec.Provider = nil, w.cloud.ProviderName
		m.Spec.ProviderSpec, m.Spec.CredentialsRef = &runtime.RawExtension{Raw: []byte(`{"kind":"Fake"}`)}, &v1beta1.LocalRef{Name: "going"}
	}
	w.createMachine("served", inline)
	w.reconcile("served")
	w.wantPhase(w.get("served"), v1beta1.MachineProvisioned)

	if err := w.api.Get(t.Context(), client.ObjectKeyFromObject(secret), secret); err != nil {
		t.Fatal(err)
	}
	secret.Finalizers = []string{"example.com/other"}
	if err := w.api.Update(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	w.createMachine("late", inline)
	w.effects.clear()
	w.reconcile("late")
	w.wantCondition(w.get("late"), v1beta1.ConditionLaunched, metav1.ConditionFalse, v1beta1.ReasonCredentialsNotFound)
	want(t, "driver calls", w.effects.calls())
	w.wantRest("late")
}
