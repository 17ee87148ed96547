//go:build e2e

package e2e

import (
	"context"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
)

// An attacker with the identity of a provider has the roles of the provider. The admission policies must restrict what
// the attacker can do with these roles.
//
// Rule: secrets-limited-by-policy.
func TestAttackWithRolesOfProvider(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(1, nil)
	m.awaitRunning(1)
	thief := m.asServiceAccount(stack.Provider)
	ctx := context.Background()
	inSystem := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name}
	}
	token := func(group string, annotations map[string]string) *corev1.Secret {
		s := &corev1.Secret{ObjectMeta: inSystem("bootstrap-token-abcdef"), Type: "bootstrap.kubernetes.io/token",
			StringData: map[string]string{
				"token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
				"auth-extra-groups": group,
			}}
		s.Annotations = annotations
		return s
	}
	ours := map[string]string{"machinist.dev/bootstrap-token-owner": "uid-1"}
	others := &corev1.Secret{ObjectMeta: inSystem("foreign"), StringData: map[string]string{"password": "x"}}
	if err := m.target.Create(ctx, others); err != nil {
		t.Fatal(err)
	}
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: examples.CredentialsSecret}}
	patch := func(o client.Object, json string) func() error {
		return func() error { return thief.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(json))) }
	}
	for name, attack := range map[string]func() error{
		"a token of a controller's ServiceAccount": func() error {
			return thief.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "mint",
					Annotations: map[string]string{corev1.ServiceAccountNameKey: "generic-garbage-collector"}},
				Type: corev1.SecretTypeServiceAccountToken,
			})
		},
		"a bootstrap token of another group": func() error {
			return thief.Create(ctx, token("system:bootstrappers:kubeadm:default-node-token", ours))
		},
		"a bootstrap token that has no owner": func() error {
			return thief.Create(ctx, token("system:bootstrappers:machinist", nil))
		},
		"deleting a Secret of the system": func() error { return thief.Delete(ctx, others.DeepCopy()) },
		"changing credentials":            patch(credentials, `{"stringData":{"token":"mine"}}`),
		"labelling credentials":           patch(credentials, `{"metadata":{"labels":{"a":"b"}}}`),
		"a finalizer on credentials":      patch(credentials, `{"metadata":{"finalizers":["example.com/mine"]}}`),
		"a Secret next to the webhook's": func() error {
			return thief.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: stack.SystemNamespace,
				Name: "mine"}})
		},
		"a Secret in a namespace of users": func() error {
			return thief.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "mine"}})
		},
		"a ConfigMap next to the records": func() error {
			return thief.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: stack.SystemNamespace,
				Name: "mine"}})
		},
		"the manager's Lease": func() error { return m.takeLease(thief, stack.Manager) },
		"disabling the manager's webhook": patch(&admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: stack.Manager}}, `{"webhooks":null}`),
		"changing a mutating webhook": patch(&admissionv1.MutatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: stack.Manager}}, `{"webhooks":null}`),
		"its own role": func() error {
			return thief.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "mine"}})
		},
		"labelling the namespace kube-system": patch(&corev1.Namespace{
			ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem}}, `{"metadata":{"labels":{"a":"b"}}}`),
	} {
		if err := attack(); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: got error %v, want a rejection", name, err)
		}
	}
	// A provider needs these requests. If the API server refused these requests too, the rejections that the test
	// checks above would prove nothing.
	mine := token("system:bootstrappers:machinist", ours)
	if err := thief.Create(ctx, mine); err != nil {
		t.Errorf("create a bootstrap token as the provider does: %v", err)
	}
	if err := patch(mine.DeepCopy(), `{"stringData":{"expiration":"2030-01-01T00:00:00Z"}}`)(); err != nil {
		t.Errorf("extend the bootstrap token: %v", err)
	}
	if err := patch(mine.DeepCopy(),
		`{"stringData":{"auth-extra-groups":"system:bootstrappers:others"}}`)(); !apierrors.IsForbidden(err) &&
		!apierrors.IsInvalid(err) {
		t.Errorf("change the group of the bootstrap token: got error %v, want a rejection", err)
	}
	if err := thief.Delete(ctx, mine); err != nil {
		t.Errorf("delete the bootstrap token: %v", err)
	}
}

// asServiceAccount returns a client of the target cluster with the ServiceAccount to which the charts bind a process.
// The processes of this stack use other users. So the stack does not count refused requests of this client as requests
// of the processes.
func (m *machinist) asServiceAccount(process string) client.Client {
	m.t.Helper()
	group := "system:serviceaccounts:" + stack.SystemNamespace
	return m.asUser("system:serviceaccount:"+stack.SystemNamespace+":"+process, "system:serviceaccounts", group)
}

func (m *machinist) asUser(user string, groups ...string) client.Client {
	m.t.Helper()
	config, err := m.Target.UserConfig(user, groups...)
	if err != nil {
		m.t.Fatal(err)
	}
	c, err := client.New(config, client.Options{Scheme: m.control.Scheme()})
	if err != nil {
		m.t.Fatal(err)
	}
	return c
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func (m *machinist) takeLease(c client.Client, name string) error {
	lease := &coordinationv1.Lease{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: stack.SystemNamespace, Name: name},
		lease); err != nil {
		m.t.Fatal(err)
	}
	return c.Update(context.Background(), lease)
}
