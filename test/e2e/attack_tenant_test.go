//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/config"
	"machinist.dev/machinist/internal/stack"
	"machinist.dev/machinist/test/env"
)

// A tenant who may write fleets gives the template the label of another provider, so that no process would ever serve or
// delete the machines. The policy refuses it. With the policies gone no machine is made, and the deployment says why.
//
//
func TestAttackTenantNamesAnotherProviderInATemplate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.quick()
	m.fleet(0, nil)
	attack := func(d *v1beta1.MachineDeployment) {
		d.Spec.Replicas = new(int32(1))
		d.Spec.Template.ObjectMeta.Labels[v1beta1.LabelProvider] = "nobody"
	}
	update := func(change func(*v1beta1.MachineDeployment)) error {
		d := m.deployment()
		before := d.DeepCopy()
		change(d)
		return m.control.Patch(ctx, d, client.MergeFrom(before))
	}
	if err := update(attack); err == nil || !strings.Contains(err.Error(), "spec.template.metadata.labels[machinist.dev/provider]") {
		t.Fatalf("the policy answered %v", err)
	}
	for _, policy := range config.Policies() {
		if err := m.control.Delete(ctx, policy); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the policies hold no longer", func() (bool, string) {
		err := update(attack)
		return err == nil, fmt.Sprint(err)
	})
	env.Await(t, m.control, &v1beta1.MachineDeploymentList{}, "the deployment to say what is wrong", func(l *v1beta1.MachineDeploymentList) (bool, string) {
		c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionProgressing)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonInvalidConfiguration &&
			strings.Contains(c.Message, v1beta1.LabelProvider), fmt.Sprint(l.Items[0].Status.Conditions)
	}, client.InNamespace(namespace))
	machines := &v1beta1.MachineList{}
	if err := m.control.List(ctx, machines); err != nil || len(machines.Items) > 0 {
		t.Fatalf("machines that nobody serves: %v %v", machines.Items, err)
	}
	if err := update(func(d *v1beta1.MachineDeployment) {
		delete(d.Spec.Template.ObjectMeta.Labels, v1beta1.LabelProvider)
	}); err != nil {
		t.Fatal(err)
	}
	m.running(1)
	m.scale(0)
	m.none()
}
