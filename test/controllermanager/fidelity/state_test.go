package fidelity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/controllermanager"
)

func comparedKinds() []client.ObjectList {
	return []client.ObjectList{&corev1.NamespaceList{}, &corev1.NodeList{}, &corev1.PodList{}, &corev1.ConfigMapList{},
		&corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{}, &certificatesv1.CertificateSigningRequestList{},
		&storagev1.VolumeAttachmentList{}}
}

// owns reports whether an object belongs to the scenario. Objects that exist in every namespace do not belong to the
// scenario.
func (s *cluster) owns(o client.Object) bool {
	if va, ok := o.(*storagev1.VolumeAttachment); ok {
		return strings.HasPrefix(va.Spec.NodeName, s.namespace)
	}
	return (o.GetNamespace() == s.namespace || strings.HasPrefix(o.GetName(), s.namespace) ||
		strings.HasSuffix(o.GetName(), s.namespace)) && o.GetName() != "kube-root-ca.crt"
}

// state describes the objects of the scenario, without the values that always differ between two clusters.
func (s *cluster) state(ctx context.Context) (all []string, err error) {
	owners := map[string]string{}
	var objects []client.Object
	for _, list := range comparedKinds() {
		if err := s.List(ctx, list); err != nil {
			return nil, err
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if o := item.(client.Object); s.owns(o) {
				objects = append(objects, o)
				owners[string(o.GetUID())] = o.GetName()
			}
			return nil
		})
	}
	for _, o := range objects {
		all = append(all, strings.ReplaceAll(describe(o), s.namespace, "x"))
	}
	slices.Sort(all)
	return all, nil
}

func describe(o client.Object) string {
	name := o.GetName()
	owner := metav1.GetControllerOfNoCopy(o)
	ordered := owner != nil && owner.Kind == "StatefulSet"
	if prefix := o.GetGenerateName(); prefix != "" && o.GetNamespace() != "" && !ordered {
		name = prefix
	}
	if va, ok := o.(*storagev1.VolumeAttachment); ok {
		name = controllermanager.VolumeOf(va) + " to " + va.Spec.NodeName
	}
	out := []string{strings.TrimPrefix(fmt.Sprintf("%T", o), "*"), name}
	if o.GetDeletionTimestamp() != nil {
		out = append(out, "deleting")
	}
	if f := o.GetFinalizers(); len(f) > 0 {
		out = append(out, "finalizers "+strings.Join(f, ","))
	}
	for _, owner := range o.GetOwnerReferences() {
		out = append(out, "owner "+owner.Name)
	}
	switch x := o.(type) {
	case *corev1.Namespace:
		out = append(out, string(x.Status.Phase))
	case *corev1.Node:
		out = append(out, describeNode(x)...)
	case *corev1.Pod:
		out = append(out, "on "+x.Spec.NodeName, string(x.Status.Phase))
		for _, c := range x.Status.Conditions {
			if c.Type == corev1.PodReady || c.Type == corev1.DisruptionTarget {
				out = append(out, fmt.Sprintf("%s=%s%s", c.Type, c.Status, c.Reason))
			}
		}
		slices.Sort(out[3:])
	case *storagev1.VolumeAttachment:
		out = append(out, fmt.Sprint("attached ", x.Status.Attached))
	case *policyv1.PodDisruptionBudget:
		st := x.Status
		var disrupted []string
		for name := range st.DisruptedPods {
			disrupted = append(disrupted, name)
		}
		slices.Sort(disrupted)
		out = append(out, fmt.Sprintf("expected %d healthy %d desired %d allowed %d disrupted %v observed %t", st.ExpectedPods,
			st.CurrentHealthy, st.DesiredHealthy, st.DisruptionsAllowed, disrupted, st.ObservedGeneration == x.Generation))
		for _, c := range st.Conditions {
			out = append(out, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Reason))
		}
	case *certificatesv1.CertificateSigningRequest:
		for _, c := range x.Status.Conditions {
			out = append(out, fmt.Sprintf("%s=%s", c.Type, c.Status))
		}
		out = append(out, fmt.Sprint("certificate ", len(x.Status.Certificate) > 0))
	}
	return strings.Join(out, " ")
}

func describeNode(node *corev1.Node) (out []string) {
	for _, c := range node.Status.Conditions {
		out = append(out, fmt.Sprintf("%s=%s (%s)", c.Type, c.Status, c.Reason))
	}
	for _, t := range node.Spec.Taints {
		out = append(out, fmt.Sprintf("taint %s:%s since %t", t.Key, t.Effect, t.TimeAdded != nil))
	}
	for _, v := range node.Status.VolumesAttached {
		out = append(out, "attached "+string(v.Name))
	}
	for _, v := range node.Status.VolumesInUse {
		out = append(out, "in use "+string(v))
	}
	if node.Spec.Unschedulable {
		out = append(out, "cordoned")
	}
	slices.Sort(out)
	return out
}

func (s *cluster) watchAll(ctx context.Context) (<-chan struct{}, error) {
	changes := make(chan struct{}, 1)
	for _, list := range comparedKinds() {
		w, err := s.Client.(client.WithWatch).Watch(ctx, list)
		if err != nil {
			return nil, err
		}
		go func() {
			<-ctx.Done()
			w.Stop()
		}()
		go func() {
			for range w.ResultChan() {
				select {
				case changes <- struct{}{}:
				default:
				}
			}
		}()
	}
	return changes, nil
}

func (s *cluster) cleanUp(t *testing.T) {
	s.kubelets.lock.Lock()
	for _, stop := range s.kubelets.stops {
		stop()
	}
	s.kubelets.lock.Unlock()
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &certificatesv1.CertificateSigningRequestList{}} {
		if err := s.List(context.Background(), list); err != nil {
			t.Error(err)
		}
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			if o := item.(client.Object); s.owns(o) {
				if err := s.Delete(context.Background(), o); err != nil && !apierrors.IsNotFound(err) {
					t.Error(err)
				}
			}
			return nil
		})
	}
}
