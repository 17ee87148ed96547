package migration

import (
	"context"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

func rulesFor(groups ...string) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"*"}}}}
}

func (x *fixture) unavailable() admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: x.namespace, Name: "gone"}}
}

// inNamespace returns a selector for the namespace of the test, so that a webhook does not affect other tests.
func (x *fixture) inNamespace() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": x.namespace}}
}

func (x *fixture) validating(name string,
	rules []admissionv1.RuleWithOperations) *admissionv1.ValidatingWebhookConfiguration {
	x.Helper()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	object := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: name + ".example.com", FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: x.unavailable(), NamespaceSelector: x.inNamespace(), AdmissionReviewVersions: []string{"v1"},
			Rules: rules}}}
	x.create(object)
	return object
}

func (x *fixture) mutating(name string,
	rules []admissionv1.RuleWithOperations) *admissionv1.MutatingWebhookConfiguration {
	x.Helper()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	object := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.MutatingWebhook{{Name: name + ".example.com", FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: x.unavailable(), NamespaceSelector: x.inNamespace(), AdmissionReviewVersions: []string{"v1"},
			Rules: rules}}}
	x.create(object)
	return object
}

func (x *fixture) exists(object client.Object) bool {
	x.Helper()
	err := x.user.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	x.must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// Rule: migration-removes-old-webhooks.
func TestWebhooksAreRemovedBeforeOldObjects(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	pool := x.createOld(oldPool)
	validating := x.validating("old-validation", rulesFor(provider.SourceClusterK8s))
	mutating := x.mutating("old-defaults", rulesFor(provider.SourceClusterK8s))
	others := x.validating("other-validation", rulesFor("example.com"))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.reconcileUntil("over", reached(v1beta1.MigrationRemoving))
	x.wantText("the plan", x.findings("over"), "Note WebhookRemoved ValidatingWebhookConfiguration/old-validation",
		"Note WebhookRemoved MutatingWebhookConfiguration/old-defaults")
	if !x.exists(validating) || !x.exists(mutating) {
		t.Error("a webhook was removed before the removal of the old objects")
	}
	x.reconcileUntil("over", reached(v1beta1.MigrationCompleted))
	if x.exists(validating) || x.exists(mutating) {
		t.Error("a webhook of the old objects still exists")
	}
	if !x.exists(others) {
		t.Error("a webhook of other objects was removed")
	}
	x.eventually("the old deployment is gone", func() (bool, string) {
		err := x.user.Get(context.Background(), client.ObjectKeyFromObject(pool), pool)
		return err != nil, ""
	})
}

// Rule: migration-removes-old-webhooks.
func TestWebhookOfOtherGroupsStaysAndIsReported(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	x.createOld(oldPool)
	shared := x.validating("shared-validation", rulesFor(provider.SourceClusterK8s, "example.com"))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.reconcileUntil("over", reached(v1beta1.MigrationRemoving))
	x.wantText("the plan", x.findings("over"), "Note WebhookStays ValidatingWebhookConfiguration/shared-validation",
		"Keep its webhook server running")
	x.reconcileUntil("over", func(m *v1beta1.Migration) bool {
		text := strings.Join(m.Status.Troubles, "\n")
		return strings.Contains(text, "shared-validation.example.com") &&
			strings.Contains(text, "remove the webhook from its configuration")
	})
	if !x.exists(shared) {
		t.Fatal("the webhook was removed")
	}
	x.must(x.user.Delete(context.Background(), shared))
	x.reconcileUntil("over", reached(v1beta1.MigrationCompleted))
}

// Rule: migration-removes-old-webhooks.
func TestWebhookStaysForOldObjectsInOtherNamespaces(t *testing.T) {
	x := newFixture(t, provider.SourceClusterK8s)
	x.createOld(oldPool)
	other := x.createOld(strings.ReplaceAll(oldPool, "namespace: NS", "namespace: "+env.Namespace(t)))
	webhook := x.mutating("old-defaults", rulesFor(provider.SourceClusterK8s))
	ignore := admissionv1.Ignore
	webhook.Webhooks[0].FailurePolicy = &ignore
	x.must(x.user.Update(context.Background(), webhook))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.reconcileUntil("over", reached(v1beta1.MigrationCompleted))
	if !x.exists(webhook) {
		t.Error("the webhook was removed although another namespace has an old object")
	}
	if !x.exists(other) {
		t.Error("the old object in another namespace was deleted")
	}
}
