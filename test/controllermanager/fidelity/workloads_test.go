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

func createWorkload(kind, name string, replicas int32) step {
	return step{name: fmt.Sprint("create ", kind, " ", name), do: func(ctx context.Context, s *cluster) error {
		p := pod("")
		p.Labels, p.Spec.NodeName = map[string]string{"app": name}, ""
		p.Spec.NodeSelector = map[string]string{"scenario": s.namespace}
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
		if kind == "DaemonSet" { // The garbage collector of the store needs this kind of owner.
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

func setCapacity(n *corev1.Node) {
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110"),
		corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("16Gi")}
	n.Status.Capacity = n.Status.Allocatable
}

func labelNode(name string) step {
	return step{name: "label node " + name, do: func(ctx context.Context, s *cluster) error {
		return change(node(name), func(n *corev1.Node) { n.Labels = map[string]string{"scenario": s.namespace} }).do(ctx, s)
	}}
}

func forEachPod(action, node string, do func(context.Context, *cluster, *corev1.Pod) error) step {
	return step{name: action + " on " + node, do: func(ctx context.Context, s *cluster) error {
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

func startPods(node string) step {
	return forEachPod("start pods", node, func(ctx context.Context, s *cluster, p *corev1.Pod) error {
		if !p.DeletionTimestamp.IsZero() {
			return nil
		}
		started := p.DeepCopy()
		setReady(started)
		return s.Status().Patch(ctx, started, client.MergeFrom(p))
	})
}

func deletePods(node string) step {
	return forEachPod("delete pods", node, func(ctx context.Context, s *cluster, p *corev1.Pod) error {
		return s.Delete(ctx, p)
	})
}

func finishPods(node string) step {
	return forEachPod("finish pods", node, func(ctx context.Context, s *cluster, p *corev1.Pod) error {
		if p.DeletionTimestamp.IsZero() {
			return nil
		}
		return s.Delete(ctx, p, client.GracePeriodSeconds(0))
	})
}

func preferNoSchedule(n *corev1.Node) {
	n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: "example.com/prefer-not",
		Effect: corev1.TaintEffectPreferNoSchedule})
}

// A ReplicaSet replaces a pod when its deletion begins. The scheduler ignores cordoned nodes, and prefers nodes without
// a PreferNoSchedule taint.
func TestReplicaSetReplacesPods(t *testing.T) {
	compare(t, joinNode("n"), changeStatus(node("n"), setCapacity), labelNode("n"), createWorkload("ReplicaSet", "web", 2),
		startPods("n"), joinNode("m"), changeStatus(node("m"), setCapacity), labelNode("m"), change(node("n"), cordon(true)),
		deletePods("n"), startPods("m"), finishPods("n"), change(node("n"), cordon(false)),
		change(node("n"), preferNoSchedule),
		deletePods("m"), startPods("m"), finishPods("m"), change(node("m"), cordon(true)), deletePods("m"), finishPods("m"),
		startPods("n"))
}

// A StatefulSet creates its pods in order, and replaces a pod only after the removal of the pod.
func TestStatefulSetReplacesPodsInOrder(t *testing.T) {
	compare(t, joinNode("n"), changeStatus(node("n"), setCapacity), labelNode("n"), createWorkload("StatefulSet", "db", 2),
		startPods("n"), startPods("n"), deletePods("n"), finishPods("n"), startPods("n"), startPods("n"))
}

// A DaemonSet has pods on cordoned nodes, but not on nodes with other taints.
func TestDaemonSetRunsOnToleratedNodes(t *testing.T) {
	compare(t, joinNode("n"), changeStatus(node("n"), setCapacity), labelNode("n"),
		createWorkload("DaemonSet", "agent", 0),
		startPods("n"), joinNode("m"), changeStatus(node("m"), setCapacity),
		change(node("m"), addTaint("example.com/new", corev1.TaintEffectNoSchedule)), labelNode("m"),
		change(node("n"), cordon(true)), deletePods("n"), finishPods("n"),
		change(node("m"), func(n *corev1.Node) { n.Spec.Taints = nil }), startPods("n"), startPods("m"), setAlive("n", false))
}
