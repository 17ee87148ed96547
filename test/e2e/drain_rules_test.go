//go:build e2e

package e2e

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// The rules of the template reach a machine that exists already. A drain leaves a skipped pod alone, and waits for a
// job before it evicts the database of the job.
//
// Rules: drain-rules-decide, drain-rules-order, labels-reach-machines-in-place.
func TestDrainRules(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	machine := m.awaitRunning(1)[0]
	pod := func(app string) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: app, Labels: map[string]string{"app": app}},
			Spec: corev1.PodSpec{NodeName: machine.Status.NodeRef.Name, AutomountServiceAccountToken: ptr.To(false),
				Containers: []corev1.Container{{Name: "main", Image: "example.com/main:1"}}},
		}
		eventually(t, "the pod "+app+" is accepted", func() (bool, string) {
			err := m.target.Create(ctx, p)
			return err == nil, errorText(err)
		})
		return p
	}
	job, database, agent := pod("job"), pod("database"), pod("agent")

	rule := func(app string, behavior v1beta1.DrainBehavior, order int32) v1beta1.DrainRule {
		return v1beta1.DrainRule{Name: app, Behavior: behavior, Order: order,
			PodSelector:       metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}}
	}
	changed := m.deployment()
	patch := client.MergeFrom(changed.DeepCopy())
	changed.Spec.Template.Spec.Drain.Rules = []v1beta1.DrainRule{rule("job", v1beta1.DrainBehaviorWaitCompleted, 0),
		rule("agent", v1beta1.DrainBehaviorSkip, 0), rule("database", v1beta1.DrainBehaviorDrain, 10)}
	if err := m.control.Patch(ctx, changed, patch); err != nil {
		t.Fatal(err)
	}
	m.await("the rules to reach the same machine", func(machines []v1beta1.Machine) bool {
		return len(machines) == 1 && machines[0].UID == machine.UID && len(machines[0].Spec.Drain.Rules) == 3
	})
	m.scaleDeployment(examples.Deployment, 0)
	m.await("the drain to wait for the job", func(machines []v1beta1.Machine) bool {
		if len(machines) != 1 {
			return false
		}
		c := meta.FindStatusCondition(machines[0].Status.Conditions, v1beta1.ConditionDrained)
		return c != nil && c.Reason == v1beta1.ReasonWaitingForCompletion &&
			strings.Contains(c.Message, namespace+"/job (waits for the pod to complete: rule job)")
	})
	for _, p := range []*corev1.Pod{job, database, agent} {
		if err := m.target.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil || !p.DeletionTimestamp.IsZero() {
			t.Errorf("pod %s is terminating or gone while the drain waits for the job: %v", p.Name, err)
		}
	}
	before := job.DeepCopy()
	job.Status.Phase = corev1.PodSucceeded
	if err := m.target.Status().Patch(ctx, job, client.MergeFrom(before)); err != nil {
		t.Fatal(err)
	}
	m.await("the machine to be gone", func(machines []v1beta1.Machine) bool { return len(machines) == 0 })
}
