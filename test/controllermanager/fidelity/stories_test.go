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

// qualify gives an object the story's namespace, or a name of the story's own if it has none, and a pod its node.
func (s *scene) qualify(o client.Object) {
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

// create makes an object in the story's namespace, owned by ConfigMaps of the names.
func create(o client.Object, owners ...string) sentence {
	return sentence{what: fmt.Sprintf("create %T %s", o, o.GetName()), do: func(ctx context.Context, s *scene) error {
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

func named(name string, finalizers ...string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers}}
}

// remove deletes an object of the story's namespace.
func remove(o client.Object, options ...client.DeleteOption) sentence {
	return sentence{what: fmt.Sprintf("delete %T %s", o, o.GetName()), do: func(ctx context.Context, s *scene) error {
		o := o.DeepCopyObject().(client.Object)
		s.qualify(o)
		return s.Delete(ctx, o, options...)
	}}
}

// change changes an object of the story's namespace, or one without any.
func change[O client.Object](o O, how func(O)) sentence { return patch(o, false, how) }

// report changes the status of an object.
func report[O client.Object](o O, how func(O)) sentence { return patch(o, true, how) }

func patch[O client.Object](o O, status bool, how func(O)) sentence {
	return sentence{what: fmt.Sprintf("change %T %s", o, o.GetName()), do: func(ctx context.Context, s *scene) error {
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

const protected = "example.com/protected"

func released(o *corev1.ConfigMap) { o.Finalizers = nil }

func TestDependentsGoWithTheirOwner(t *testing.T) {
	for _, policy := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground,
		metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan} {
		for _, blocked := range [][]string{nil, {protected}} {
			t.Run(fmt.Sprint(policy, blocked), func(t *testing.T) {
				story := []sentence{create(named("owner")), create(named("other")), create(named("child", blocked...), "owner"),
					create(named("grandchild"), "child"), create(named("shared"), "owner", "other"),
					remove(named("owner"), client.PropagationPolicy(policy))}
				if blocked != nil {
					story = append(story, change(named("child"), released))
				}
				compare(t, append(story, remove(named("other")))...)
			})
		}
	}
}

// An owner that is blocked by somebody keeps its dependents until it is gone.
func TestAnOwnerThatIsHeldKeepsItsDependents(t *testing.T) {
	compare(t, create(named("owner", protected)), create(named("child"), "owner"), remove(named("owner")),
		create(named("sibling"), "owner"), change(named("owner"), released))
}

// pod is one on node n.
func pod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "a"}},
		Spec: corev1.PodSpec{NodeName: "n", AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
}

func node(name string) *corev1.Node { return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}} }

// joins registers a node as its kubelet does, which then is ready and is heard of.
func joins(name string) sentence {
	return sentence{what: "a kubelet joins as " + name, do: func(ctx context.Context, s *scene) error {
		n := node(name)
		s.qualify(n)
		n.Status.Conditions = conditions(corev1.ConditionTrue)
		if err := s.lives(ctx, n.Name, true); err != nil {
			return err
		}
		return s.Create(ctx, n)
	}}
}

// conditions are those that a kubelet reports.
func conditions(ready corev1.ConditionStatus) (all []corev1.NodeCondition) {
	now := metav1.Now()
	for _, kind := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		all = append(all, corev1.NodeCondition{Type: kind, Status: corev1.ConditionFalse, LastHeartbeatTime: now,
			LastTransitionTime: now})
	}
	return append(all, corev1.NodeCondition{Type: corev1.NodeReady, Status: ready, Reason: "Kubelet",
		LastHeartbeatTime: now, LastTransitionTime: now})
}

func ready(p *corev1.Pod) {
	p.Status.Phase = corev1.PodRunning
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
}

func ended(p *corev1.Pod) {
	p.Status.Phase = corev1.PodSucceeded
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
}

func budget(spec policyv1.PodDisruptionBudgetSpec) *policyv1.PodDisruptionBudget {
	spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "budget"}, Spec: spec}
}

func evict(name string) sentence {
	return sentence{what: "evict " + name, do: func(ctx context.Context, s *scene) error {
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
			compare(t, joins("n"), create(budget(spec)), create(pod("a")), create(pod("b")), create(pod("c")), report(pod("a"), ready),
				report(pod("b"), ready), report(pod("c"), ended), remove(pod("b")),
				remove(pod("b"), client.GracePeriodSeconds(0)), remove(pod("c")),
				change(budget(spec), func(b *policyv1.PodDisruptionBudget) {
					b.Spec.MinAvailable, b.Spec.MaxUnavailable = ptr.To(intstr.FromInt32(0)), nil
				}), evict("a"))
		})
	}
}

func refused(s sentence) sentence {
	s.refused = true
	return s
}

func TestEvictions(t *testing.T) {
	unready := func(p *corev1.Pod) {
		ready(p)
		p.Status.Conditions[0].Status = corev1.ConditionFalse
	}
	both := budget(policyv1.PodDisruptionBudgetSpec{MaxUnavailable: ptr.To(intstr.FromInt32(0))})
	both.Name = "another"
	spec := policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1))}
	policy := func(p policyv1.UnhealthyPodEvictionPolicyType) sentence {
		return change(budget(spec), func(b *policyv1.PodDisruptionBudget) { b.Spec.UnhealthyPodEvictionPolicy = &p })
	}
	// Of two budgets of a pod, the real controller looks after one, whichever it finds first: so the second
	// comes last.
	compare(t, joins("n"), create(pod("ready")), create(pod("unready")), create(pod("pending")), create(pod("done")),
		report(pod("ready"), ready), report(pod("unready"), unready), report(pod("done"), ended),
		create(budget(spec)), refused(evict("ready")), evict("pending"),
		policy(policyv1.IfHealthyBudget), evict("unready"), create(pod("second")), report(pod("second"), unready),
		report(pod("ready"), unready), refused(evict("second")), policy(policyv1.AlwaysAllow), evict("second"),
		evict("second"), report(pod("ready"), ready), evict("done"), create(both), refused(evict("ready")),
		refused(evict("nobody")))
}

// A namespace that is deleted takes all with it, and waits for what is blocked.
func TestNamespacesEnd(t *testing.T) {
	end := sentence{what: "delete the namespace", do: func(ctx context.Context, s *scene) error {
		return s.Delete(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace}})
	}}
	compare(t, joins("n"), create(named("blocked", protected)), create(named("free")), create(pod("running")),
		report(pod("running"), ready), end, remove(pod("running"), client.GracePeriodSeconds(0)),
		change(named("blocked"), released))
}
