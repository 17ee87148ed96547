package integration

import (
	"context"
	"errors"
	"fmt"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

func fleetOf(namespace, name string, annotations map[string]string) *v1beta1.MachineDeployment {
	labels := map[string]string{"fleet": name}
	return &v1beta1.MachineDeployment{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1beta1.GroupVersion.String(), Kind: "MachineDeployment"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec: v1beta1.MachineDeploymentSpec{Selector: metav1.LabelSelector{MatchLabels: labels},
			Template: v1beta1.MachineTemplateSpec{ObjectMeta: v1beta1.TemplateMeta{Labels: labels},
				Spec: v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: "small"}}}},
	}
}

// Rules: replicas-left-out-are-kept, webhook-certificate-maintained.
func TestOmittedReplicasAreStored(t *testing.T) {
	ctx, c, ns, address := t.Context(), env.Client(t), env.Namespace(t), freeAddress(t)
	installWebhooks(t, manifests.ManagerWebhook(urlOf(address)))
	mutating := manifests.ManagerMutatingWebhook(urlOf(address))
	must(t, "create the mutating webhook", c.Create(ctx, mutating))
	t.Cleanup(func() {
		if err := c.Delete(context.Background(), mutating); err != nil {
			t.Error(err)
		}
	})
	serve(t, core, true, asCore, "--webhook-bind-address="+address)
	group := map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "3", v1beta1.AutoscalerMaxSizeAnnotation: "10"}
	eventually(t, "the mutating webhook is asked", func() error {
		probe := fleetOf(ns, "probe", group)
		if err := c.Create(ctx, probe, client.DryRunAll); err != nil {
			return err
		}
		if probe.Spec.Replicas == nil {
			return errors.New("spec.replicas is not set")
		}
		return nil
	})
	eventually(t, "the validating webhook is asked", func() error { return webhookRefuses(t, c, ns) })
	check := func(what string, d *v1beta1.MachineDeployment, want int32) {
		t.Helper()
		if got := d.Spec.Replicas; got == nil || *got != want {
			t.Errorf("%s: spec.replicas is %v, want %d", what, got, want)
		}
	}
	apply := func(annotations map[string]string) *v1beta1.MachineDeployment {
		t.Helper()
		d := fleetOf(ns, "web", annotations)
		must(t, "apply", c.Patch(ctx, d, client.Apply, client.FieldOwner("gitops"), client.ForceOwnership))
		return d
	}
	d := apply(group)
	check("a new group", d, 3)
	scaled := d.DeepCopy()
	scaled.Spec.Replicas = new(int32)
	*scaled.Spec.Replicas = 7
	must(t, "scale", c.Patch(ctx, scaled, client.MergeFrom(d)))
	group = map[string]string{v1beta1.AutoscalerMinSizeAnnotation: "2", v1beta1.AutoscalerMaxSizeAnnotation: "4"}
	check("applied again", apply(group), 7)
	must(t, "read", c.Get(ctx, client.ObjectKeyFromObject(d), scaled))
	without := scaled.DeepCopy()
	without.Spec.Replicas = nil
	must(t, "update without the number", c.Update(ctx, without))
	check("updated without the number", without, 7)
	if err := c.SubResource("scale").Get(ctx, without, &autoscalingv1.Scale{}); err != nil {
		t.Error(fmt.Errorf("the subresource scale: %w", err))
	}
}
