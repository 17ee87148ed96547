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

// A namespace that is being deleted refuses new objects, but allows all other requests.
func TestNamespaceDeletion(t *testing.T) {
	t.Parallel()
	kube, store := deleteNamespace(t, env.Client(t)), deleteNamespace(t,
		apiserver.New(env.Scheme(), time.Now).Client("trace"))
	for i := range kube {
		if kube[i] != store[i] {
			t.Errorf("real:  %s\nstore: %s", kube[i], store[i])
		}
	}
}

func deleteNamespace(t *testing.T, c client.Client) (outcomes []string) {
	ctx := t.Context()
	record := func(request string, err error) {
		outcome := fmt.Sprint(request, ": ", apierrors.ReasonForError(err))
		if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
			for _, cause := range status.Status().Details.Causes {
				outcome += fmt.Sprint(" ", cause.Type, " ", cause.Field)
			}
		}
		outcomes = append(outcomes, outcome)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "ending-", Labels: map[string]string{"a": "b"}}}
	record("create a namespace", c.Create(ctx, ns))
	metadata := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns.Name, Name: name} }
	compare := func(name string) {
		version := ns.ResourceVersion
		record(name, c.Get(ctx, client.ObjectKeyFromObject(ns), ns))
		outcomes = append(outcomes, fmt.Sprint(name, ": ", ns.Status.Phase, ns.Spec.Finalizers, ns.Finalizers,
			ns.DeletionTimestamp != nil, ns.DeletionGracePeriodSeconds,
			len(ns.Labels), ns.Labels[corev1.LabelMetadataName] == ns.Name, version == ns.ResourceVersion))
	}
	compare("a new namespace")
	protected := &corev1.Secret{ObjectMeta: metadata("kept")}
	protected.Finalizers = []string{v1beta1.InUseFinalizer}
	record("create a secret", c.Create(ctx, protected))
	pod := &corev1.Pod{ObjectMeta: metadata("pod"),
		Spec: corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
	record("create a pod", c.Create(ctx, pod))

	record("delete the namespace", c.Delete(ctx, ns))
	compare("a deleted namespace")
	record("delete the namespace again", c.Delete(ctx, ns))
	compare("a namespace that is deleted twice")
	record("create a secret in it", c.Create(ctx, &corev1.Secret{ObjectMeta: metadata("new")}))
	record("create an existing secret", c.Create(ctx, &corev1.Secret{ObjectMeta: metadata("kept")}))
	record("create an invalid secret", c.Create(ctx, &corev1.Secret{ObjectMeta: metadata("in valid")}))
	record("generate a name", c.Create(ctx,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, GenerateName: "new-"}}))
	machine := &v1beta1.Machine{ObjectMeta: metadata("m")}
	machine.Spec.ClassRef = &v1beta1.LocalRef{Name: "c"}
	record("create a machine in it", c.Create(ctx, machine))
	record("evict", c.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{ObjectMeta: metadata("pod")}))
	changed := protected.DeepCopy()
	changed.Labels = map[string]string{"a": "b"}
	record("patch", c.Patch(ctx, changed, client.MergeFrom(protected)))
	record("delete a secret with a finalizer", c.Delete(ctx, protected.DeepCopy()))
	record("get the deleted secret", c.Get(ctx, client.ObjectKeyFromObject(protected), protected))
	outcomes = append(outcomes, fmt.Sprint("the secret has its finalizer: ",
		slices.Contains(protected.Finalizers, v1beta1.InUseFinalizer),
		protected.DeletionTimestamp != nil))
	released := protected.DeepCopy()
	released.Finalizers = nil
	record("remove the finalizer", c.Patch(ctx, released, client.MergeFrom(protected)))
	record("get the removed secret", c.Get(ctx, client.ObjectKeyFromObject(protected), protected))
	record("delete the pod", c.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	compare("the namespace at the end")
	return outcomes
}
