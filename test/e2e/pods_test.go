//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func (m *machinist) protectedPod(app, node string) *corev1.Pod {
	m.t.Helper()
	return &m.protectedPods(app, node)[0]
}

// protectedPods runs a pod of the app on each node, with a PodDisruptionBudget that allows no eviction. protectedPods
// returns when the budget's status includes all pods.
func (m *machinist) protectedPods(app string, nodes ...string) []corev1.Pod {
	m.t.Helper()
	ctx := context.Background()
	labels := map[string]string{"app": app}
	for i, node := range nodes {
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("%s-%d", app, i), Labels: labels},
			Spec: corev1.PodSpec{
				NodeName:                     node,
				AutomountServiceAccountToken: ptr.To(false),
				Containers:                   []corev1.Container{{Name: "main", Image: "example.com/main:1"}},
			},
		}
		// The namespace gets its ServiceAccount only some time after the start of the cluster.
		eventually(m.t, "the pod is accepted", func() (bool, string) {
			err := m.target.Create(ctx, pod)
			return err == nil, fmt.Sprint(err)
		})
	}
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt(len(nodes))),
			Selector:     &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	if err := m.target.Create(ctx, budget); err != nil {
		m.t.Fatalf("create budget %s: %v", app, err)
	}
	env.Await(m.t, m.target, &policyv1.PodDisruptionBudgetList{}, "a budget that counts the pods",
		func(l *policyv1.PodDisruptionBudgetList) (bool, string) {
			for i := range l.Items {
				if b := &l.Items[i]; b.Name == app {
					return int(b.Status.CurrentHealthy) == len(nodes) && b.Status.ObservedGeneration == b.Generation,
						fmt.Sprintf("%d of %d pods are healthy", b.Status.CurrentHealthy, b.Status.ExpectedPods)
				}
			}
			return false, "budget " + app + " does not exist"
		}, client.InNamespace(namespace))
	pods := &corev1.PodList{}
	if err := m.target.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(labels)); err != nil {
		m.t.Fatalf("list the pods of app %s: %v", app, err)
	}
	return pods.Items
}

func (m *machinist) liftBudget(app string) {
	m.t.Helper()
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app}}
	lift := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"minAvailable":0}}`))
	if err := m.target.Patch(context.Background(), budget, lift); err != nil {
		m.t.Fatalf("change budget %s: %v", app, err)
	}
}

func blockedBy(m *v1beta1.Machine, pod, app string) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonBlockedByDisruptionBudget &&
		strings.Contains(c.Message, namespace+"/"+pod+" ") && strings.Contains(c.Message, "PodDisruptionBudget "+app+" ")
}
