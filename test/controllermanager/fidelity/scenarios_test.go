package fidelity

import (
	"context"
	"fmt"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// qualify sets the namespace of an object, or a unique name if the object is cluster-wide, and also sets the node of a
// pod.
func (s *cluster) qualify(o client.Object) {
	switch x := o.(type) {
	case *corev1.Node, *certificatesv1.CertificateSigningRequest:
		o.SetName(s.name(o.GetName()))
		return
	case *corev1.Pod:
		if x.Spec.NodeName != "" {
			x.Spec.NodeName = s.name(x.Spec.NodeName)
		}
	}
	o.SetNamespace(s.namespace)
}

func create(o client.Object, owners ...string) step {
	return step{name: fmt.Sprintf("create %T %s", o, o.GetName()), do: func(ctx context.Context, s *cluster) error {
		o := o.DeepCopyObject().(client.Object)
		s.qualify(o)
		for _, name := range owners {
			owner := &corev1.ConfigMap{}
			if err := s.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: name}, owner); err != nil {
				return err
			}
			o.SetOwnerReferences(append(o.GetOwnerReferences(), metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap",
				Name: name, UID: owner.UID, BlockOwnerDeletion: ptr.To(true)}))
		}
		return s.Create(ctx, o)
	}}
}

func configMap(name string, finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
}

func remove(o client.Object, options ...client.DeleteOption) step {
	return step{name: fmt.Sprintf("delete %T %s", o, o.GetName()), do: func(ctx context.Context, s *cluster) error {
		o := o.DeepCopyObject().(client.Object)
		s.qualify(o)
		return s.Delete(ctx, o, options...)
	}}
}

func change[O client.Object](o O, how func(O)) step { return patch(o, false, how) }

func changeStatus[O client.Object](o O, how func(O)) step { return patch(o, true, how) }

func patch[O client.Object](o O, status bool, how func(O)) step {
	return step{name: fmt.Sprintf("change %T %s", o, o.GetName()), do: func(ctx context.Context, s *cluster) error {
		before := o.DeepCopyObject().(O)
		s.qualify(before)
		if err := s.Get(ctx, client.ObjectKeyFromObject(before), before); err != nil {
			return err
		}
		after := before.DeepCopyObject().(O)
		how(after)
		if status {
			return s.Status().Patch(ctx, after, client.MergeFrom(before))
		}
		return s.Patch(ctx, after, client.MergeFrom(before))
	}}
}

const finalizer = "example.com/protected"

func removeFinalizers(o *corev1.ConfigMap) { o.Finalizers = nil }

func TestDependentsAreDeletedWithOwner(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		for _, finalizers := range [][]string{nil, {finalizer}} {
			t.Run(fmt.Sprint(policy, finalizers), func(t *testing.T) {
				scenario := []step{create(configMap("owner")), create(configMap("other")),
					create(configMap("child", finalizers...), "owner"), create(configMap("grandchild"), "child"),
					create(configMap("shared"), "owner", "other"),
					remove(configMap("owner"), client.PropagationPolicy(policy))}
				if finalizers != nil {
					scenario = append(scenario, change(configMap("child"), removeFinalizers))
				}
				compare(t, append(scenario, remove(configMap("other")))...)
			})
		}
	}
}

// Dependents are deleted only after their owner.
func TestOwnerWithFinalizerKeepsDependents(t *testing.T) {
	compare(t, create(configMap("owner", finalizer)), create(configMap("child"), "owner"), remove(configMap("owner")),
		create(configMap("sibling"), "owner"), change(configMap("owner"), removeFinalizers))
}

func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{NodeName: "n", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

func joinNode(name string) step {
	return step{name: "join node " + name, do: func(ctx context.Context, s *cluster) error {
		n := node(name)
		s.qualify(n)
		n.Status.Conditions = conditions(corev1.ConditionTrue)
		if err := s.setAlive(ctx, n.Name, true); err != nil {
			return err
		}
		return s.Create(ctx, n)
	}}
}

func conditions(status corev1.ConditionStatus) (all []corev1.NodeCondition) {
	now := metav1.Now()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		all = append(all, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastHeartbeatTime: now,
			LastTransitionTime: now})
	}
	return append(all, corev1.NodeCondition{Type: corev1.NodeReady, Status: status, Reason: "Kubelet",
		LastHeartbeatTime: now, LastTransitionTime: now})
}

func setReady(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func setSucceeded(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func budget(spec policyv1.PodDisruptionBudgetSpec) *policyv1.PodDisruptionBudget {
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: spec}
}

func evict(name string) step {
	return step{name: "evict " + name, do: func(ctx context.Context, s *cluster) error {
		p := pod(name)
		p.Namespace = s.namespace
		return s.SubResource("eviction").Create(ctx, p, &policyv1.Eviction{})
	}}
}

func TestDisruptionBudgetsCountPods(t *testing.T) {
	for name, spec := range map[string]policyv1.PodDisruptionBudgetSpec{
		"at least 1":            {MinAvailable: ptr.To(intstr.FromInt32(1))},
		"at least 50%":          {MinAvailable: ptr.To(intstr.FromString("50%"))},
		"at most 1 unavailable": {MaxUnavailable: ptr.To(intstr.FromInt32(1))},
	} {
		t.Run(name, func(t *testing.T) {
			compare(t, joinNode("n"), create(budget(spec)), create(pod("a")), create(pod("b")), create(pod("c")),
				changeStatus(pod("a"), setReady), changeStatus(pod("b"), setReady), changeStatus(pod("c"), setSucceeded),
				remove(pod("b")), remove(pod("b"), client.GracePeriodSeconds(0)), remove(pod("c")),
				change(budget(spec), func(b *policyv1.PodDisruptionBudget) {
					b.Spec.MinAvailable, b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(0)), nil
				}), evict("a"))
		})
	}
}

func refused(s step) step {
	s.refused = true
	return s
}

func TestEvictions(t *testing.T) {
	unready := func(p *corev1.Pod) {
		setReady(p)
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	second := budget(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))})
	second.Name = "another"
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))}
	policy := func(p policyv1.UnhealthyPodEvictionPolicyType) step {
		return change(budget(spec), func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &p })
	}
	// The real controller updates only one of the two budgets of a pod, and the choice is random. So the second
	// budget is created in the last step.
	compare(t, joinNode("n"), create(pod("ready")), create(pod("unready")), create(pod("pending")), create(pod("done")),
		changeStatus(pod("ready"), setReady), changeStatus(pod("unready"), unready), changeStatus(pod("done"), setSucceeded),
		create(budget(spec)), refused(evict("ready")), evict("pending"),
		policy(policyv1.IfHealthyBudget), evict("unready"), create(pod("second")), changeStatus(pod("second"), unready),
		changeStatus(pod("ready"), unready), refused(evict("second")), policy(policyv1.AlwaysAllow), evict("second"),
		evict("second"), changeStatus(pod("ready"), setReady), evict("done"), create(second), refused(evict("ready")),
		refused(evict("missing")))
}

// The namespace waits for objects with finalizers.
func TestNamespaceDeletion(t *testing.T) {
	deletion := step{name: "delete the namespace", do: func(ctx context.Context, s *cluster) error {
		return s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	}}
	compare(t, joinNode("n"), create(configMap("blocked", finalizer)), create(configMap("free")), create(pod("running")),
		changeStatus(pod("running"), setReady), deletion, remove(pod("running"), client.GracePeriodSeconds(0)),
		change(configMap("blocked"), removeFinalizers))
}
