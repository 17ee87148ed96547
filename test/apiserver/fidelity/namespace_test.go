package fidelity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/apiserver"
	"machinist.dev/machinist/test/env"
)

// In a namespace that is being deleted nothing new is made, and everything else goes on.
func TestTheEndOfANamespace(t *testing.T) {
	t.Parallel()
	real, server := endOfNamespace(t, env.Client(t)), endOfNamespace(t,
		apiserver.New(env.Scheme(), time.Now).Client("trace"))
	for i := range real {
		if real[i] != server[i] {
			t.Errorf("real:  %s\nstore: %s", real[i], server[i])
		}
	}
}

// endOfNamespace returns what came of each request.
func endOfNamespace(t *testing.T, c client.Client) (outcomes []string) {
	ctx := t.Context()
	said := func(what string, err error) {
		outcome := fmt.Sprint(what, ": ", apierrors.ReasonForError(err))
		if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
			for _, cause := range status.Status().Details.Causes {
				outcome += fmt.Sprint(" ", cause.Type, " ", cause.Field)
			}
		}
		outcomes = append(outcomes, outcome)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ending-", Labels: map[string]string{"a": "b"}}}
	said("create a namespace", c.Create(ctx, ns))
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns.Name, Name: name} }
	compare := func(what string) {
		version := ns.ResourceVersion
		said(what, c.Get(ctx, client.ObjectKeyFromObject(ns), ns))
		outcomes = append(outcomes, fmt.Sprint(what, ": ", ns.Status.Phase, ns.Spec.Finalizers, ns.Finalizers,
			ns.DeletionTimestamp != nil, ns.DeletionGracePeriodSeconds,
			len(ns.Labels), ns.Labels[corev1.LabelMetadataName] == ns.Name, version == ns.ResourceVersion))
	}
	compare("a new namespace")
	protected := &corev1.Secret{ObjectMeta: named("kept")}
	protected.Finalizers = []string{v1beta1.InUseFinalizer}
	said("create a secret", c.Create(ctx, protected))
	pod := &corev1.Pod{ObjectMeta: named("pod"),
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	said("create a pod", c.Create(ctx, pod))

	said("delete the namespace", c.Delete(ctx, ns))
	compare("after that")
	said("delete it again", c.Delete(ctx, ns))
	compare("after that too")
	said("create a secret in it", c.Create(ctx, &corev1.Secret{ObjectMeta: named("new")}))
	said("create what is there", c.Create(ctx, &corev1.Secret{ObjectMeta: named("kept")}))
	said("create an invalid one", c.Create(ctx, &corev1.Secret{ObjectMeta: named("in valid")}))
	said("generate a name", c.Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, GenerateName: "new-"}}))
	machine := &v1beta1.Machine{ObjectMeta: named("m")}
	machine.Spec.ClassRef = &v1beta1.LocalRef{Name: "c"}
	said("create a machine in it", c.Create(ctx, machine))
	said("evict", c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: named("pod")}))
	changed := protected.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	said("patch", c.Patch(ctx, changed, client.MergeFrom(protected)))
	said("delete what is held", c.Delete(ctx, protected.DeepCopy()))
	said("check it", c.Get(ctx, client.ObjectKeyFromObject(protected), protected))
	outcomes = append(outcomes, fmt.Sprint("held: ", slices.Contains(protected.Finalizers, v1beta1.InUseFinalizer),
		protected.DeletionTimestamp != nil))
	released := protected.DeepCopy()
	released.Finalizers = nil
	said("let it go", c.Patch(ctx, released, client.MergeFrom(protected)))
	said("look for it", c.Get(ctx, client.ObjectKeyFromObject(protected), protected))
	said("delete the pod", c.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	compare("in the end")
	return outcomes
}
