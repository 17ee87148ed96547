//go:build e2e

package e2e

import (
	"context"
	"fmt"
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
)

// An attacker with the identity of the operator has all permissions of provider processes. A policy must restrict the
// attacker to the objects that belong to provider processes. The attacker must not be able to grant the other
// permissions of the operator to a provider process.
//
// Rule: operator-limited-by-policy.
func TestAttackStolenOperatorIdentity(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	ctx := context.Background()
	thief := m.asOperator()
	in := func(ns, name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: ns, Name: name} }
	const process, operatorRole = "machinist-provider-azure", "machinist-operator-control"
	deployment := func(name string, change func(*corev1.PodSpec)) *appsv1.Deployment {
		labels := map[string]string{"app": name}
		d := &appsv1.Deployment{ObjectMeta: in(stack.SystemNamespace, name), Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				ServiceAccountName: name,
				Containers: []corev1.Container{{Name: name, Image: "registry.machinist.dev/machinist-provider-azure:v1",
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: new(false)}}},
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
	account := func(name string) *corev1.ServiceAccount {
		return &corev1.ServiceAccount{ObjectMeta: in(stack.SystemNamespace, name)}
	}
	ours := rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: stack.SystemNamespace, Name: process}
	user := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "mallory"}
	role := func(name, group, resource, verb string) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: in("", name), Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}}}}
	}
	shared := role(process, "", "secrets", "get")
	shared.Labels = map[string]string{"rbac.authorization.k8s.io/aggregate-to-view": "true"}
	service := func(externalIPs ...string) *corev1.Service {
		return &corev1.Service{ObjectMeta: in(stack.SystemNamespace, process), Spec: corev1.ServiceSpec{
			ExternalIPs: externalIPs, Ports: []corev1.ServicePort{{Port: 443}}}}
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
	machine := m.machines()[0]
	node := &corev1.Node{ObjectMeta: in("", machine.Status.NodeRef.Name)}
	label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
	for name, err := range map[string]error{
		"bind a role to a user":            thief.Create(ctx, binding(process, "machinist-provider-sim-control", user)),
		"bind its own role to a provider":  thief.Create(ctx, binding(process, operatorRole, ours)),
		"bind under another name":          thief.Create(ctx, binding("mine", "machinist-provider-sim-control", ours)),
		"create a role under another name": thief.Create(ctx, role("mine", "", "secrets", "get")),
		"let a provider write role bindings": thief.Create(ctx,
			role(process, rbacv1.GroupName, "clusterrolebindings", "create")),
		"add permissions to the role view":     thief.Create(ctx, shared),
		"run a pod under another name":         thief.Create(ctx, deployment("machinist-manager-2", nil)),
		"run a provider as the manager":        thief.Create(ctx, deployment(process, asManager)),
		"mount a path of the host":             thief.Create(ctx, deployment(process, withHostPath)),
		"use the network of the host":          thief.Create(ctx, deployment(process, onHostNetwork)),
		"run another image":                    thief.Create(ctx, deployment(process, withOtherImage)),
		"get the traffic of another host":      thief.Create(ctx, service("192.0.2.1")),
		"create a webhook under another name":  thief.Create(ctx, webhook("mine")),
		"create a service account of another":  thief.Create(ctx, account("mine")),
		"change a machine":                     thief.Patch(ctx, machine.DeepCopy(), label),
		"delete a machine":                     thief.Delete(ctx, machine.DeepCopy()),
		"change a node":                        thief.Patch(ctx, node.DeepCopy(), label),
		"delete a node":                        thief.Delete(ctx, node.DeepCopy()),
		"delete the service account of others": thief.Delete(ctx, account(stack.Manager)),
	} {
		m.wantDeniedBy("operator", name, err)
	}
	// Two policies refuse this request. The error of the API server names only one of the two policies.
	if err := thief.Create(ctx, token); !deniedBy("processes-secrets", err) && !deniedBy("operator", err) {
		t.Errorf("create a bootstrap token: got error %v, want a rejection by a policy", err)
	}
	// The API server itself refuses to bind a permission that the operator does not have.
	if err := thief.Create(ctx, binding(process, "view", ours)); !apierrors.IsForbidden(err) {
		t.Errorf("bind a role of Kubernetes: got error %v, want Forbidden", err)
	}
	for _, object := range []client.Object{role(process+"-control", "", "secrets", "get"),
		binding(process, process+"-control", ours), service(), webhook(process), account(process),
		deployment(process, nil)} {
		m.wantAllowed(fmt.Sprintf("creating %T %s, as the operator does,", object, object.GetName()),
			thief.Create(ctx, object))
	}
}
