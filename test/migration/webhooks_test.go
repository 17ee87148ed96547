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

// rulesFor are rules for changes of objects of the groups.
func rulesFor(groups ...string) []admissionv1.RuleWithOperations {
	return []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.Update, admissionv1.Delete},
		Rule:       admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"*"}}}}
}

// downAt is the server of a webhook that does not run. The webhook is for the namespace of the test only, so that other
// tests go on.
func (x *takeover) downAt() admissionv1.WebhookClientConfig {
	return admissionv1.WebhookClientConfig{Service: &admissionv1.ServiceReference{Namespace: x.namespace, Name: "gone"}}
}

func (x *takeover) here() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": x.namespace}}
}

func (x *takeover) validating(name string,
	rules []admissionv1.RuleWithOperations) *admissionv1.ValidatingWebhookConfiguration {
	x.Helper()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	object := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: name + ".example.com", FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: x.downAt(), NamespaceSelector: x.here(), AdmissionReviewVersions: []string{"v1"}, Rules: rules}}}
	x.create(object)
	return object
}

func (x *takeover) mutating(name string,
	rules []admissionv1.RuleWithOperations) *admissionv1.MutatingWebhookConfiguration {
	x.Helper()
	fail, none := admissionv1.Fail, admissionv1.SideEffectClassNone
	object := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.MutatingWebhook{{Name: name + ".example.com", FailurePolicy: &fail, SideEffects: &none,
			ClientConfig: x.downAt(), NamespaceSelector: x.here(), AdmissionReviewVersions: []string{"v1"}, Rules: rules}}}
	x.create(object)
	return object
}

func (x *takeover) exists(object client.Object) bool {
	x.Helper()
	err := x.person.Get(context.Background(), client.ObjectKeyFromObject(object), object)
	x.must(client.IgnoreNotFound(err))
	return !apierrors.IsNotFound(err)
}

// Rule: migration-removes-old-webhooks.
func TestWebhooksOfTheOldObjectsGoBeforeThem(t *testing.T) {
	x := begin(t, provider.SourceClusterK8s)
	pool := x.old(oldPool)
	validating := x.validating("old-validation", rulesFor(provider.SourceClusterK8s))
	mutating := x.mutating("old-defaults", rulesFor(provider.SourceClusterK8s))
	others := x.validating("other-validation", rulesFor("example.com"))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.passes("over", reached(v1beta1.MigrationRemoving))
	x.wantText("the plan", x.findings("over"), "Note WebhookRemoved ValidatingWebhookConfiguration/old-validation",
		"Note WebhookRemoved MutatingWebhookConfiguration/old-defaults")
	if !x.exists(validating) || !x.exists(mutating) {
		t.Error("a webhook is gone before the old objects are removed")
	}
	x.passes("over", reached(v1beta1.MigrationCompleted))
	if x.exists(validating) || x.exists(mutating) {
		t.Error("a webhook of the old objects is left")
	}
	if !x.exists(others) {
		t.Error("a webhook of other objects is gone")
	}
	x.eventually("the old deployment is gone", func() (bool, string) {
		err := x.person.Get(context.Background(), client.ObjectKeyFromObject(pool), pool)
		return err != nil, ""
	})
}

// Rule: migration-removes-old-webhooks.
func TestAWebhookThatIsForOthersTooStaysAndIsNamed(t *testing.T) {
	x := begin(t, provider.SourceClusterK8s)
	x.old(oldPool)
	shared := x.validating("shared-validation", rulesFor(provider.SourceClusterK8s, "example.com"))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.passes("over", reached(v1beta1.MigrationRemoving))
	x.wantText("the plan", x.findings("over"), "Note WebhookStays ValidatingWebhookConfiguration/shared-validation",
		"Keep its webhook server running")
	x.passes("over", func(m *v1beta1.Migration) bool {
		text := strings.Join(m.Status.Troubles, "\n")
		return strings.Contains(text, "shared-validation.example.com") &&
			strings.Contains(text, "remove the webhook from its configuration")
	})
	if !x.exists(shared) {
		t.Fatal("the webhook is gone")
	}
	x.must(x.person.Delete(context.Background(), shared))
	x.passes("over", reached(v1beta1.MigrationCompleted))
}

// Rule: migration-removes-old-webhooks.
func TestWebhooksStayWithOldObjectsOfOtherNamespaces(t *testing.T) {
	x := begin(t, provider.SourceClusterK8s)
	x.old(oldPool)
	other := x.old(strings.ReplaceAll(oldPool, "namespace: NS", "namespace: "+env.Namespace(t)))
	webhook := x.mutating("old-defaults", rulesFor(provider.SourceClusterK8s))
	ignore := admissionv1.Ignore
	webhook.Webhooks[0].FailurePolicy = &ignore
	x.must(x.person.Update(context.Background(), webhook))
	x.migrate("over", provider.SourceClusterK8s, v1beta1.MigrationCommit)
	x.passes("over", reached(v1beta1.MigrationCompleted))
	if !x.exists(webhook) {
		t.Error("the webhook is gone, and an old object in another namespace stays")
	}
	if !x.exists(other) {
		t.Error("the old object of another namespace is gone")
	}
}
