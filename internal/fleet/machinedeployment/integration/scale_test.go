package integration

import (
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// Autoscalers read and change deployments through the scale subresource. Autoscalers need the fields status.selector
// and status.replicas of this subresource.
func TestAutoscalersScaleADeployment(t *testing.T) {
	b := newBench(t)
	b.create(3, rolling("1", "0"))
	b.settle()
	scale := func(replicas int32) *autoscalingv1.Scale {
		t.Helper()
		scale := &autoscalingv1.Scale{}
		b.must(b.api.SubResource("scale").Get(b.ctx, b.deployment(), scale))
		if scale.Spec.Replicas != replicas || scale.Status.Replicas != replicas {
			t.Errorf("scale is %+v %+v, expected %d", scale.Spec, scale.Status, replicas)
		}
		selector, err := labels.Parse(scale.Status.Selector)
		b.must(err)
		var machines v1beta1.MachineList
		b.must(b.api.List(b.ctx, &machines, client.InNamespace(b.namespace),
			client.MatchingLabelsSelector{Selector: selector}))
		if selector.Empty() || len(machines.Items) != int(replicas) {
			t.Errorf("the selector %q finds %d machines, expected %d", scale.Status.Selector, len(machines.Items), replicas)
		}
		return scale
	}
	s := scale(3)
	s.Spec.Replicas = 5
	b.must(b.api.SubResource("scale").Update(b.ctx, b.deployment(), client.WithSubResourceBody(s)))
	b.settle()
	scale(5)
}
