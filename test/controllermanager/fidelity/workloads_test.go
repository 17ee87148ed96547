package fidelity

import (
	"context"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/controllermanager"
)

// wanted makes a workload: in the real cluster its object, in the other one what stands for it.
func wanted(kind, name string, replicas int32) sentence {
	return sentence{what: fmt.Sprint("make ", kind, " ", name), do: func(ctx context.Context, s *scene) error {
		p := pod("")
		p.Labels, p.Spec.NodeName = map[string]string{"app": name}, ""
		p.Spec.NodeSelector = map[string]string{"story": s.namespace}
		meta := metav1.ObjectMeta{Namespace: s.namespace, Name: name}
		if s.double == nil {
			selector := &metav1.LabelSelector{MatchLabels: p.Labels}
			template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels}, Spec: p.Spec}
			switch kind {
			case "ReplicaSet":
				return s.Create(ctx, &appsv1.ReplicaSet{ObjectMeta: meta, Spec: appsv1.ReplicaSetSpec{Replicas: &replicas,
					Selector: selector, Template: template}})
			case "StatefulSet":
				return s.Create(ctx, &appsv1.StatefulSet{ObjectMeta: meta, Spec: appsv1.StatefulSetSpec{Replicas: &replicas,
					Selector: selector, Template: template, ServiceName: name}})
			}
			return s.Create(ctx, &appsv1.DaemonSet{ObjectMeta: meta, Spec: appsv1.DaemonSetSpec{Selector: selector,
				Template: template}})
		}
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "uid-of-workload",
			Controller: ptr.To(true)}}
		if kind == "DaemonSet" { // The store knows this kind, so that its collector looks for the owner.
			set := &appsv1.DaemonSet{ObjectMeta: meta}
			if err := s.Create(ctx, set); err != nil {
				return err
			}
			p.OwnerReferences[0].UID = set.UID
			p.Spec.Tolerations = controllermanager.DaemonTolerations()
		}
		s.double.workloads = append(s.double.workloads, controllermanager.Workload{Kind: kind, Namespace: s.namespace,
			Name: name, Replicas: int(replicas), Pod: p})
		return nil
	}}
}

// roomy lets a node take pods of the story.
func roomy(n *corev1.Node) {
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	n.Status.Capacity = n.Status.Allocatable
}

func labelled(name string) sentence {
	return sentence{what: "label node " + name, do: func(ctx context.Context, s *scene) error {
		return change(node(name), func(n *corev1.Node) { n.Labels = map[string]string{"story": s.namespace} }).do(ctx, s)
	}}
}

// each does something to all pods of the story on a node.
func each(what, node string, do func(context.Context, *scene, *corev1.Pod) error) sentence {
	return sentence{what: what + " on " + node, do: func(ctx context.Context, s *scene) error {
		list := &corev1.PodList{}
		if err := s.List(ctx, list, client.InNamespace(s.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if p := &list.Items[i]; p.Spec.NodeName == s.name(node) {
				if err := do(ctx, s, p); err != nil {
					return err
				}
			}
		}
		return nil
	}}
}

func start(node string) sentence {
	return each("pods start", node, func(ctx context.Context, s *scene, p *corev1.Pod) error {
		if !p.DeletionTimestamp.IsZero() {
			return nil
		}
		started := p.DeepCopy()
		ready(started)
		return s.Status().Patch(ctx, started, client.MergeFrom(p))
	})
}

func ask(node string) sentence {
	return each("pods are asked to end", node, func(ctx context.Context, s *scene, p *corev1.Pod) error {
		return s.Delete(ctx, p)
	})
}

// finish is a kubelet's: pods that were asked to end are gone.
func finish(node string) sentence {
	return each("pods end", node, func(ctx context.Context, s *scene, p *corev1.Pod) error {
		if p.DeletionTimestamp.IsZero() {
			return nil
		}
		return s.Delete(ctx, p, client.GracePeriodSeconds(0))
	})
}

func rather(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/rather", Effect: corev1.TaintEffectPreferNoSchedule})
}

// A ReplicaSet replaces a pod as soon as it is asked to end, on a node that is not cordoned, and on one that rather
// takes none only where there is no other.
func TestAReplicaSetReplacesItsPods(t *testing.T) {
	compare(t, joins("n"), report(node("n"), roomy), labelled("n"), wanted("ReplicaSet", "web", 2), start("n"),
		joins("m"), report(node("m"), roomy), labelled("m"), change(node("n"), cordon(true)), ask("n"), start("m"),
		finish("n"), change(node("n"), cordon(false)), change(node("n"), rather), ask("m"), start("m"), finish("m"),
		change(node("m"), cordon(true)), ask("m"), finish("m"), start("n"))
}

// A StatefulSet makes its pods in order, and one anew only when the one before it is gone.
func TestAStatefulSetWaitsForItsPods(t *testing.T) {
	compare(t, joins("n"), report(node("n"), roomy), labelled("n"), wanted("StatefulSet", "db", 2), start("n"), start("n"),
		ask("n"), finish("n"), start("n"), start("n"))
}

// A DaemonSet has its pods on cordoned nodes as well, and on none with taints of others.
func TestADaemonSetIsOnEveryNode(t *testing.T) {
	compare(t, joins("n"), report(node("n"), roomy), labelled("n"), wanted("DaemonSet", "agent", 0), start("n"),
		joins("m"), report(node("m"), roomy), change(node("m"), tainted("example.com/new", corev1.TaintEffectNoSchedule)),
		labelled("m"), change(node("n"), cordon(true)), ask("n"), finish("n"),
		change(node("m"), func(n *corev1.Node) { n.Spec.Taints = nil }), start("n"), start("m"), lives("n", false))
}
