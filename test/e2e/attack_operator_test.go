//go:build e2e

package e2e

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/manifests"
)

// A stolen identity of the operator has all permissions of providers, but a policy leaves it only the objects of
// provider processes.
func TestAttackStolenOperatorIdentity(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	ctx := context.Background()
	objects, err := manifests.Operator()
	if err != nil {
		t.Fatal(err)
	}
	if err := install.Apply(ctx, m.Control.Config(), objects...); err != nil {
		t.Fatal(err)
	}
	thief := m.asServiceAccount("machinist-operator")
	in := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	const process = "machinist-provider-azure"
	deployment := func(name string, change func(*corev1.PodSpec)) *appsv1.Deployment {
		labels, no := map[string]string{"app": name}, false
		d := &appsv1.Deployment{ObjectMeta: in(stack.SystemNamespace, name), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				ServiceAccountName: name,
				Containers: []corev1.Container{{Name: name, Image: "registry.machinist.dev/machinist-provider-azure:v1",
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no}}},
			}},
		}}
		if change != nil {
			change(&d.Spec.Template.Spec)
		}
		return d
	}
	binding := func(name, role string, subject rbacv1.Subject) *rbacv1.ClusterRoleBinding {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: in("", name), Subjects: []rbacv1.Subject{subject},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}}
	}
	account := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: stack.SystemNamespace, Name: process}
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}
	role := func(name string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: in("", name), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}}}}
	}
	webhook := func(name string) *admissionv1.ValidatingWebhookConfiguration {
		return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: in("", name)}
	}
	asManager := func(p *corev1.PodSpec) { p.ServiceAccountName = "machinist-manager" }
	withHostPath := func(p *corev1.PodSpec) {
		p.Volumes = []corev1.Volume{{Name: "root",
			VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
	}
	onHostNetwork := func(p *corev1.PodSpec) { p.HostNetwork = true }
	withOtherImage := func(p *corev1.PodSpec) { p.Containers[0].Image = "registry.example.com/shell" }
	token := &corev1.Secret{ObjectMeta: in(metav1.NamespaceSystem, "bootstrap-token-abcdef"),
		Type: "bootstrap.kubernetes.io/token"}
	otherAccount := &corev1.ServiceAccount{ObjectMeta: in(stack.SystemNamespace, "default")}
	machine := m.machines()[0]
	node := &corev1.Node{ObjectMeta: in("", machine.Status.NodeRef.Name)}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	eventually(t, "the policy works", func() (bool, string) {
		err := thief.Patch(ctx, node.DeepCopy(), label, client.DryRunAll)
		return apierrors.IsForbidden(err) || apierrors.IsInvalid(err), errorText(err)
	})
	for name, err := range map[string]error{
		"bind a role to a user":               thief.Create(ctx, binding(process, "machinist-provider-sim-control", user)),
		"bind a role of Kubernetes":           thief.Create(ctx, binding(process, "view", account)),
		"bind under another name":             thief.Create(ctx, binding("mine", "machinist-provider-sim-control", account)),
		"create a role under another name":    thief.Create(ctx, role("mine")),
		"run a pod as the manager":            thief.Create(ctx, deployment("machinist-manager-2", nil)),
		"run a provider as the manager":       thief.Create(ctx, deployment(process, asManager)),
		"mount a path of the host":            thief.Create(ctx, deployment(process, withHostPath)),
		"use the network of the host":         thief.Create(ctx, deployment(process, onHostNetwork)),
		"run another image":                   thief.Create(ctx, deployment(process, withOtherImage)),
		"create a webhook under another name": thief.Create(ctx, webhook("mine")),
		"change a machine":                    thief.Patch(ctx, machine.DeepCopy(), label),
		"delete a machine":                    thief.Delete(ctx, machine.DeepCopy()),
		"change a node":                       thief.Patch(ctx, node.DeepCopy(), label),
		"delete a node":                       thief.Delete(ctx, node.DeepCopy()),
		"create a bootstrap token":            thief.Create(ctx, token),
		"delete another service account":      thief.Delete(ctx, otherAccount),
	} {
		if !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got %v, want a refusal", name, err)
		}
	}
	for _, object := range []client.Object{role(process + "-control"), binding(process, process+"-control", account),
		&corev1.ServiceAccount{ObjectMeta: in(stack.SystemNamespace, process)}, deployment(process, nil), webhook(process)} {
		if err := thief.Create(ctx, object); err != nil {
			t.Errorf("create %T %s, as the operator does: %v", object, object.GetName(), err)
		}
	}
}
