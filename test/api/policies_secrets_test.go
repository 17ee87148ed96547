package api

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// asProcess returns a client with the identity of a process. The client has all permissions, so only the policies
// restrict it.
func asProcess(t *testing.T, name string) client.Client {
	t.Helper()
	system := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: manifests.Namespace}}
	if err := env.Client(t).Create(t.Context(), system); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return impersonate(t, "system:serviceaccount:"+manifests.Namespace+":"+name,
		"system:serviceaccounts:"+manifests.Namespace, "system:masters")
}

func newToken(id, groups string) *corev1.Secret {
	return &corev1.Secret{Type: corev1.SecretTypeBootstrapToken,
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "bootstrap-token-" + id},
		StringData: map[string]string{"token-id": id, "token-secret": "0123456789abcdef", "auth-extra-groups": groups,
			"usage-bootstrap-authentication": "true"}}
}

func withMark(token *corev1.Secret) *corev1.Secret {
	token.Annotations = map[string]string{"machinist.dev/bootstrap-token-owner": "uid-1"}
	return token
}

const ownGroup = "system:bootstrappers:machinist"

// Rule: secrets-limited-by-policy.
func TestProcessCreatesOnlyItsOwnSecrets(t *testing.T) {
	const manager, provider, migrator = "machinist-manager", "machinist-provider-sim", "machinist-migrator-sim"
	namespace := env.Namespace(t)
	opaque := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	webhookOf := func(process string) *corev1.Secret { return opaque(manifests.Namespace, process+"-webhook") }
	copied := func() *corev1.Secret {
		s := opaque(namespace, "copy")
		s.Labels = map[string]string{"machinist.dev/migration": "over"}
		s.Annotations = map[string]string{"machinist.dev/migrated-from": "group/kind/name/uid"}
		return s
	}
	elsewhere := withMark(newToken("abcdef", ownGroup))
	elsewhere.Namespace = namespace
	mint := opaque(metav1.NamespaceSystem, "mint")
	mint.Type, mint.Annotations = corev1.SecretTypeServiceAccountToken, map[string]string{
		corev1.ServiceAccountNameKey: "default", "machinist.dev/bootstrap-token-owner": "uid-1"}
	await(t, "the policy for Secrets", func() bool {
		return refusedBy("processes-secrets",
			asProcess(t, manager).Create(t.Context(), opaque(namespace, "any"), client.DryRunAll))
	})
	for _, test := range []struct {
		what, process string
		secret        *corev1.Secret
		allowed       bool
	}{
		{"the manager's certificate", manager, webhookOf(manager), true},
		{"the provider's certificate", provider, webhookOf(provider), true},
		{"the certificate of another provider", provider, webhookOf(provider + "-2"), false},
		{"the manager's certificate", provider, webhookOf(manager), false},
		{"a provider's certificate", manager, webhookOf(provider), false},
		{"the own certificate in another namespace", provider, opaque(namespace, provider+"-webhook"), false},
		{"a certificate of its own", "machinist-operator", webhookOf("machinist-operator"), false},
		{"a certificate of its own", "default", webhookOf("default"), false},
		{"a bootstrap token", provider, withMark(newToken("abcdef", ownGroup)), true},
		{"a bootstrap token without the mark", provider, newToken("abcdef", ownGroup), false},
		{"a bootstrap token without a group", provider, withMark(newToken("abcdef", "")), false},
		{"a bootstrap token of another group", provider, withMark(newToken("abcdef", "system:bootstrappers:other")), false},
		{"a bootstrap token of two groups", provider, withMark(newToken("abcdef", ownGroup+",system:bootstrappers:other")),
			false},
		{"a bootstrap token in another namespace", provider, elsewhere, false},
		{"a bootstrap token", manager, withMark(newToken("abcdef", ownGroup)), false},
		{"a bootstrap token", migrator, withMark(newToken("abcdef", ownGroup)), false},
		{"a bootstrap token", "machinist-operator", withMark(newToken("abcdef", ownGroup)), false},
		{"a token of a ServiceAccount", provider, mint, false},
		{"a copy for a Migration", migrator, copied(), true},
		{"a copy for a Migration", "machinist-migrator-a.b", copied(), false},
		{"a copy for a Migration", provider, copied(), false},
		{"a Secret", migrator, opaque(namespace, "any"), false},
	} {
		err := asProcess(t, test.process).Create(t.Context(), test.secret.DeepCopy(), client.DryRunAll)
		switch {
		case test.allowed && err != nil:
			t.Errorf("%s cannot create %s: %v", test.process, test.what, err)
		case !test.allowed && !refusedBy("processes-secrets", err) && !refusedBy("operator", err):
			t.Errorf("%s creates %s: got error %v, want a rejection by the policy", test.process, test.what, err)
		}
	}
}

// A provider must be able to extend and delete the bootstrap tokens that it has created, even if the value
// nodeBootstrapper.tokenGroups no longer contains the groups of these tokens.
//
// Rule: secrets-limited-by-policy.
func TestProviderChangesOnlyMarkedTokens(t *testing.T) {
	admin, provider := env.Client(t), asProcess(t, "machinist-provider-sim")
	const formerGroups = ownGroup + ",system:bootstrappers:former"
	ours, theirs := withMark(newToken("aaaaaa", formerGroups)), newToken("bbbbbb", ownGroup)
	for _, token := range []*corev1.Secret{ours, theirs} {
		if err := admin.Create(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), token); err != nil {
				t.Error(err)
			}
		})
	}
	await(t, "the policy for Secrets", func() bool {
		return refusedBy("processes-secrets", provider.Delete(t.Context(), theirs.DeepCopy(), client.DryRunAll))
	})
	extend := jsonPatch{"add", "/data/expiration", []byte("2030-01-01T00:00:00Z")}
	for what, err := range map[string]error{
		"extends its token":   tryPatch(t, provider, ours, extend),
		"corrects the groups": tryPatch(t, provider, ours, jsonPatch{"add", "/data/auth-extra-groups", []byte(ownGroup)}),
		"deletes its token":   provider.Delete(t.Context(), ours.DeepCopy(), client.DryRunAll),
	} {
		if err != nil {
			t.Errorf("the provider %s: got error %v, want none", what, err)
		}
	}
	mark := jsonPatch{"add", "/metadata/annotations", map[string]string{"machinist.dev/bootstrap-token-owner": "uid-1"}}
	others := jsonPatch{"add", "/data/auth-extra-groups", []byte("system:bootstrappers:other")}
	manager, migrator := asProcess(t, "machinist-manager"), asProcess(t, "machinist-migrator-sim")
	for what, err := range map[string]error{
		"the provider changes the groups of its token": tryPatch(t, provider, ours, others),
		"the provider extends the token of another":    tryPatch(t, provider, theirs, extend),
		"the provider marks the token of another":      tryPatch(t, provider, theirs, mark),
		"the provider marks and extends that token":    tryPatch(t, provider, theirs, mark, extend),
		"the manager extends a token":                  tryPatch(t, manager, ours, extend),
		"the manager deletes a token":                  manager.Delete(t.Context(), ours.DeepCopy(), client.DryRunAll),
		"the migrator deletes a token":                 migrator.Delete(t.Context(), ours.DeepCopy(), client.DryRunAll),
	} {
		if !refusedBy("processes-secrets", err) {
			t.Errorf("%s: got error %v, want a rejection by the policy", what, err)
		}
	}
}

// In a Secret with credentials, a provider may change only its own finalizer.
//
// Rule: secrets-limited-by-policy.
func TestProviderChangesOnlyFinalizerOfCredentials(t *testing.T) {
	admin, provider := env.Client(t), asProcess(t, "machinist-provider-sim")
	one := map[string]string{"one": "a"}
	credentials := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: env.Namespace(t), Name: "credentials",
		Labels: one, Annotations: one}, StringData: map[string]string{"token": "x"}}
	if err := admin.Create(t.Context(), credentials); err != nil {
		t.Fatal(err)
	}
	relabel := jsonPatch{"add", "/metadata/labels/one", "b"}
	await(t, "the policy for Secrets", func() bool {
		return refusedBy("processes-secrets", tryPatch(t, provider, credentials, relabel))
	})
	const inUse = "machinist.dev/in-use"
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "one", UID: "1"}
	for what, patch := range map[string]jsonPatch{
		"changes a label":         relabel,
		"adds a label":            {"add", "/metadata/labels/two", "a"},
		"removes all labels":      {Op: "remove", Path: "/metadata/labels"},
		"changes an annotation":   {"add", "/metadata/annotations/one", "b"},
		"removes all annotations": {Op: "remove", Path: "/metadata/annotations"},
		"adds an owner":           {"add", "/metadata/ownerReferences", []metav1.OwnerReference{owner}},
		"adds another finalizer":  {"add", "/metadata/finalizers", []string{inUse, "example.com/one"}},
		"adds a key":              {"add", "/data/mine", []byte("x")},
		"changes a key":           {"add", "/data/token", []byte("y")},
		"removes all keys":        {Op: "remove", Path: "/data"},
		"makes it immutable":      {"add", "/immutable", true},
	} {
		if err := tryPatch(t, admin, credentials, patch); err != nil {
			t.Errorf("an administrator cannot send the patch that %s: %v", what, err)
		}
		if err := tryPatch(t, provider, credentials, patch); !refusedBy("processes-secrets", err) {
			t.Errorf("the provider %s: got error %v, want a rejection by the policy", what, err)
		}
	}
	held := jsonPatch{"add", "/metadata/finalizers", []string{inUse}}
	if err := tryPatch(t, provider, credentials, held); err != nil {
		t.Errorf("the provider cannot add its finalizer: %v", err)
	}
	credentials.Finalizers = []string{inUse}
	if err := admin.Update(t.Context(), credentials); err != nil {
		t.Fatal(err)
	}
	if err := tryPatch(t, provider, credentials, jsonPatch{Op: "remove", Path: "/metadata/finalizers"}); err != nil {
		t.Errorf("the provider cannot remove its finalizer: %v", err)
	}
	credentials.Finalizers = nil
	if err := admin.Update(t.Context(), credentials); err != nil {
		t.Fatal(err)
	}
}
