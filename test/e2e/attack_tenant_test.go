//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// A tenant may write fleets. In the template of a fleet, the tenant sets the provider label to another provider. With
// this label, no process would create or delete the instances of the machines. The policy must refuse the template. If
// neither the policies nor the webhook are installed, no machine may be created, and the deployment must report the
// reason.
//
// Rule: reserved-keys-refused.
func TestAttackTenantSetsProviderLabelInTemplate(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(0, nil)
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
	if err := update(attack); err == nil ||
		!strings.Contains(err.Error(), "spec.template.metadata.labels[machinist.dev/provider]") {
		t.Fatalf("got error %v, want a rejection by the policy", err)
	}
	for _, admission := range append([]client.Object{manifests.ManagerWebhook("")}, manifests.Policies()...) {
		if err := m.control.Delete(ctx, admission); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "the policies are no longer in force", func() (bool, string) {
		err := update(attack)
		return err == nil, fmt.Sprint(err)
	})
	env.Await(t, m.control, &v1beta1.MachineDeploymentList{}, "the deployment to report what is wrong",
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionProgressing)
			return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1beta1.ReasonInvalidConfiguration &&
				strings.Contains(c.Message, v1beta1.LabelProvider), fmt.Sprint(l.Items[0].Status.Conditions)
		}, client.InNamespace(namespace))
	machines := &v1beta1.MachineList{}
	if err := m.control.List(ctx, machines); err != nil || len(machines.Items) > 0 {
		t.Fatalf("got machines %v, error %v; want none", machines.Items, err)
	}
	if err := update(func(d *v1beta1.MachineDeployment) {
		delete(d.Spec.Template.ObjectMeta.Labels, v1beta1.LabelProvider)
	}); err != nil {
		t.Fatal(err)
	}
	m.awaitRunning(1)
	m.scale(0)
	m.awaitNoMachines()
}

// A tenant may write classes and fleets, but may not read Secrets. The classes of the tenant refer to a Secret of
// another team as user data and as credentials, so that the tenant could read the Secret on an instance. Machinist must
// not read the data of the Secret, launch an instance, or add a finalizer to the Secret. The tenant must be able to
// delete the classes and fleets.
//
// Rules: secret-needs-use-label, no-finalizer-without-label.
func TestAttackTenantReferencesForeignSecret(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	theirs := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "theirs"},
		StringData: map[string]string{v1beta1.DefaultUserDataKey: "#cloud-config\n# their password",
			"token": "their password"}}
	if err := m.control.Create(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	m.createFleet(1, func(o client.Object) {
		if class, ok := o.(*v1beta1.MachineClass); ok {
			switch class.Name {
			case examples.SmallClass:
				class.Spec.UserDataRef.Name = theirs.Name
			default:
				class.Spec.CredentialsRef.Name = theirs.Name
			}
		}
	})
	m.await("a machine that reports what is wrong", func(machines []v1beta1.Machine) bool {
		return len(machines) == 1 && refusedBy(&machines[0], v1beta1.ReasonSecretNotLabelled, "kubectl label secret theirs")
	})
	env.Await(t, m.control, &v1beta1.MachineClassList{}, "both classes to report what is wrong",
		func(l *v1beta1.MachineClassList) (bool, string) {
			n := 0
			for _, class := range l.Items {
				if c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionReady); c != nil &&
					c.Reason == v1beta1.ReasonSecretNotLabelled {
					n++
				}
			}
			return n == 2, fmt.Sprint(l.Items)
		}, client.InNamespace(namespace))
	if err := m.control.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); err != nil || len(theirs.Finalizers) > 0 {
		t.Errorf("got finalizers %v on the Secret, error %v; want none", theirs.Finalizers, err)
	}
	if n := len(m.instances()); n > 0 {
		t.Errorf("got %d instances, want none", n)
	}
	m.scale(0)
	m.awaitNoMachines()
	if err := m.control.Delete(ctx, theirs); err != nil {
		t.Fatal(err)
	}
	if err := m.control.Get(ctx, client.ObjectKeyFromObject(theirs), theirs); !apierrors.IsNotFound(err) {
		t.Errorf("the Secret still exists after its deletion: %v", err)
	}
}

func refusedBy(m *v1beta1.Machine, reason, message string) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason && strings.Contains(c.Message, message)
}
