//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// A stolen identity of a provider reads no Secret outside of secretNamespaces, and changes nothing of another provider.
// The fleet shows that the process itself needs no more.
func TestAttackStolenProviderReadsOtherNamespaces(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{SecretNamespaces: []string{namespace}})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	ctx := context.Background()
	tenant := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "tenant"}}
	others := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "password"}}
	foreign := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign"},
		Spec: v1beta1.MachineClassSpec{Provider: "other", ProviderSpec: providerSpec(t, "small")}}
	machine := &v1beta1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foreign",
		Labels: map[string]string{v1beta1.LabelProvider: "other"}},
		Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "foreign"}}}
	unreadable := &v1beta1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: "tenant", Name: "unreadable"},
		Spec: v1beta1.MachineClassSpec{Provider: "sim", ProviderSpec: providerSpec(t, "small"),
			CredentialsRef: &v1beta1.LocalRef{Name: "password"}}}
	for _, object := range []client.Object{tenant, others, foreign, machine, unreadable} {
		if err := m.control.Create(ctx, object); err != nil {
			t.Fatal(err)
		}
	}

	thief := m.asServiceAccount(stack.Provider)
	patch := func(o client.Object, json string) error {
		return thief.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(json)))
	}
	setStatus := func(o client.Object) error {
		failed := client.RawPatch(types.MergePatchType, []byte(`{"status":{"failureReason":"InstanceFailed"}}`))
		return thief.Status().Patch(ctx, o.DeepCopyObject().(client.Object), failed)
	}
	const label = `{"metadata":{"labels":{"a":"b"}}}`
	for name, err := range map[string]error{
		"list the Secrets of all namespaces":       thief.List(ctx, &corev1.SecretList{}),
		"list the Secrets of kube-system":          thief.List(ctx, &corev1.SecretList{}, client.InNamespace(metav1.NamespaceSystem)),
		"list the Secrets of machinist-system":     thief.List(ctx, &corev1.SecretList{}, client.InNamespace(stack.SystemNamespace)),
		"read a Secret of another namespace":       thief.Get(ctx, client.ObjectKeyFromObject(others), &corev1.Secret{}),
		"change a class of another provider":       patch(foreign.DeepCopy(), label),
		"change a machine of another provider":     patch(machine.DeepCopy(), label),
		"take a machine of another provider":       patch(machine.DeepCopy(), `{"metadata":{"labels":{"machinist.dev/provider":"sim"}}}`),
		"let a machine of another provider fail":   setStatus(machine),
		"delete a machine of another provider":     thief.Delete(ctx, machine.DeepCopy()),
		"give one of its machines to another":      patch(&m.machines()[0], `{"metadata":{"labels":{"machinist.dev/provider":"other"}}}`),
		"remove the finalizer of another provider": patch(foreign.DeepCopy(), `{"metadata":{"finalizers":[]}}`),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	own := client.ObjectKey{Namespace: namespace, Name: examples.CredentialsSecret}
	if err := thief.Get(ctx, own, &corev1.Secret{}); err != nil {
		t.Errorf("the provider must read the Secrets of secretNamespaces: %v", err)
	}
	eventually(t, "the class reports that its Secret cannot be read", func() (bool, string) {
		class := &v1beta1.MachineClass{}
		if err := m.control.Get(ctx, client.ObjectKeyFromObject(unreadable), class); err != nil {
			return false, err.Error()
		}
		ready := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady)
		const want = `The provider may not read Secret "password" in namespace "tenant". Add the namespace to the value ` +
			`secretNamespaces of the chart machinist-provider.`
		return ready != nil && ready.Message == want, fmt.Sprintf("%+v", ready)
	})
}
