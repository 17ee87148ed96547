package integration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Rules: capacity-of-empty-node-groups, empty-node-groups-report-unknown-capacity.
func TestDeploymentWithPlacementIsOneNodeGroup(t *testing.T) {
	w := newTestManager(t)
	option := func(class string) []v1beta1.PlacementOption { return []v1beta1.PlacementOption{{ClassName: class}} }
	w.class("small-a", "cpu", "2", "memory", "8Gi")
	w.deployment("small-a", bounds())
	w.pass()
	w.edit(func(d *v1beta1.MachineDeployment) {
		d.Spec.Template.Spec.ClassRef = nil
		d.Spec.Placement = &v1beta1.Placement{Domains: []v1beta1.PlacementDomain{{Name: "a", Options: option("small-a")},
			{Name: "b", Options: option("small-b")}}}
	})

	w.Log("an option without a class changes nothing")
	d, writes := w.pass()
	w.wrote(writes, 0)
	w.expect(d, "cpu", "2", "memory", "8Gi", "labels", pool, "taints", dedicated)
	w.expectCondition(d, "", "")

	w.Log("the condition names the option whose capacity is unknown")
	unknown := w.class("small-b")
	d, _ = w.pass()
	w.expect(d, "labels", pool, "taints", dedicated)
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonCapacityUnknown)
	message := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionScalableFromZero).Message
	if !strings.Contains(message, "MachineClass small-b states") {
		t.Errorf("the message does not name the class: %s", message)
	}

	w.Log("each resource is the minimum")
	w.resolve(unknown, "cpu", "4", "memory", "4Gi")
	d, _ = w.pass()
	w.expect(d, "cpu", "2", "memory", "4Gi", "labels", pool, "taints", dedicated)
	w.expectCondition(d, metav1.ConditionTrue, v1beta1.ReasonCapacityKnown)
	_, writes = w.pass()
	w.wrote(writes, 0)

	w.Log("a domain without new machines does not count")
	w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Placement.Domains[1].Weight = new(int32) })
	d, _ = w.pass()
	w.expect(d, "cpu", "2", "memory", "8Gi", "labels", pool, "taints", dedicated)
	w.edit(func(d *v1beta1.MachineDeployment) { d.Spec.Placement.Domains[0].Weight = new(int32) })
	d, _ = w.pass()
	w.expectCondition(d, metav1.ConditionFalse, v1beta1.ReasonNoClass)
}
