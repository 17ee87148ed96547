package migration

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/env"
)

// Rule: migration-secrets-need-consent.
func TestSecretsOfOtherNamespacesNeedConsent(t *testing.T) {
	labelled := func(value string) map[string]string { return map[string]string{v1beta1.LabelMigrationUse: value} }
	object := func(namespace, name string, labels map[string]string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}
	}
	data := map[string][]byte{"key": []byte("value")}
	live := fake.NewClientBuilder().WithScheme(env.Scheme()).WithObjects(
		&corev1.Secret{ObjectMeta: object("old", "plain", nil), Data: data},
		&corev1.Secret{ObjectMeta: object("shared", "plain", nil), Data: data},
		&corev1.Secret{ObjectMeta: object("other", "plain", nil), Data: data},
		&corev1.Secret{ObjectMeta: object("other", "allowed", labelled("allowed")), Data: data},
		&corev1.Secret{ObjectMeta: object("other", "denied", labelled("denied")), Data: data},
		&corev1.Secret{ObjectMeta: object("unbound", "allowed", labelled("allowed")), Data: data},
		&corev1.ConfigMap{ObjectMeta: object("other", "plain", nil), Data: map[string]string{"key": "value"}},
		&corev1.ConfigMap{ObjectMeta: object("other", "allowed", labelled("allowed")),
			Data: map[string]string{"key": "value"}},
	).WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey,
		o client.Object, options ...client.GetOption) error {
		if strings.HasPrefix(key.Namespace, "unbound") {
			return apierrors.NewForbidden(corev1.Resource("secrets"), key.Name, nil)
		}
		return c.Get(ctx, key, o, options...)
	}}).Build()
	for name, c := range map[string]struct {
		kind, namespace, object string
		code                    string // "" if the object may be used
		message                 []string
	}{
		"the namespace of the old objects": {"Secret", "old", "plain", "", nil},
		"a shared namespace":               {"Secret", "shared", "plain", "", nil},
		"another namespace": {"Secret", "other", "plain", CodeSecretNotAllowed,
			[]string{"Secret other/plain is not in the namespace old of the old objects", "machinist.dev/migration-use=allowed"}},
		"another namespace, with the label":         {"Secret", "other", "allowed", "", nil},
		"another namespace, with another value":     {"Secret", "other", "denied", CodeSecretNotAllowed, nil},
		"another namespace, which has no such name": {"Secret", "other", "missing", CodeSecretNotAllowed, nil},
		"another namespace, without the right": {"Secret", "unbound", "allowed", CodeSecretNotAllowed,
			[]string{"add the namespace unbound to the value migrator.namespaces"}},
		"a ConfigMap of another namespace":                 {"ConfigMap", "other", "plain", CodeSecretNotAllowed, nil},
		"a ConfigMap of another namespace, with the label": {"ConfigMap", "other", "allowed", "", nil},
		"the namespace of the old objects, which has no such name": {"Secret", "old", "missing", CodeSecretUnreadable,
			[]string{"Secret old/missing does not exist."}},
	} {
		t.Run(name, func(t *testing.T) {
			r := &secretReader{live: live, source: "old", sharedNamespaces: []string{"shared"}, seen: map[string]content{}}
			for range 2 { // The second read gets its result from memory.
				got, problem, err := r.entries(context.Background(), c.kind, key(c.namespace, c.object))
				switch {
				case err != nil:
					t.Fatal(err)
				case c.code == "" && (problem != nil || string(got["key"]) != "value"):
					t.Errorf("got %q, problem %v; want the value", got, problem)
				case c.code != "" && (problem == nil || problem.code != c.code || len(got) > 0):
					t.Errorf("got %q, problem %v; want the problem %s", got, problem, c.code)
				}
				for _, text := range c.message {
					if !strings.Contains(problem.message, text) {
						t.Errorf("got the message %q, want %q in it", problem.message, text)
					}
				}
			}
		})
	}
	unbound := &secretReader{live: live, source: "unbound", seen: map[string]content{}}
	_, problem, err := unbound.entries(context.Background(), "Secret", key("unbound", "allowed"))
	if err != nil || problem == nil || problem.code != CodeSecretUnreadable ||
		!strings.Contains(problem.message, "Add the namespace unbound to the value migrator.namespaces") {
		t.Errorf("without rights in the namespace of the old objects: got problem %v, error %v", problem, err)
	}
}

// Old objects must not refer to the Secret in spec.credentialsRef, because other users write them.
//
// Rule: migration-secrets-need-consent.
func TestSecretOfMigrationIsNotForOldObjects(t *testing.T) {
	f, _ := gardener(t)
	f.secrets = append(f.secrets, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "fleet", Name: "more"},
		Data: map[string][]byte{"clientID": []byte("more")}})
	f.migration.Spec.CredentialsRef = &v1beta1.LocalRef{Name: "more"}
	if b := f.plan().blockers(); len(b) > 0 {
		t.Errorf("blocked by %s, although the Migration names the Secret", b)
	}
	for _, class := range f.objects {
		if class.GetKind() == "MachineClass" {
			write(t, class, map[string]any{"namespace": "fleet", "name": "more"}, "credentialsSecretRef")
		}
	}
	plan := f.plan()
	found := plan.findings.withCode(CodeSecretNotAllowed)
	if len(found) != 1 || found[0].Level != blocker || !strings.Contains(found[0].Message, "Secret fleet/more") {
		t.Errorf("got findings\n%s\nwant the Blocker %s", plan.findings.text(), CodeSecretNotAllowed)
	}
}

func regionFromSecret(t *testing.T) *oldFleet {
	t.Helper()
	all := fleetOf(t, provider.SourceMachineK8s, "healthy")
	machine := all.named("Machine", "worker-2").DeepCopy()
	write(t, machine, map[string]any{"secretKeyRef": map[string]any{"namespace": "kube-system", "name": "azure-account",
		"key": "secret"}}, "spec", "providerConfig", "cloudProviderSpec", "location")
	f := newFleet(t, provider.SourceMachineK8s)
	f.add(machine)
	return f
}

// Rule: migration-hides-values-of-secrets.
func TestPlanHidesValuesOfSecrets(t *testing.T) {
	const value, path = "azure-account/secret", "spec.providerConfig.cloudProviderSpec.location"
	f := regionFromSecret(t)
	plan := f.plan()
	found := plan.expect(t, provider.FindingLoss, CodeSecretInClass, "Machine/worker-2")
	if found.Path != path || !strings.Contains(found.Message, "providerSpec.region") ||
		!strings.Contains(found.Message, "key secret of Secret kube-system/azure-account") {
		t.Errorf("got the loss %s %s, want one that names the field and the Secret", found.Path, found.Message)
	}
	if spec := string(plan.classes[0].object.Spec.ProviderSpec.Raw); !strings.Contains(spec, value) {
		t.Errorf("the class is created with the providerSpec %s, want the value of the Secret in it", spec)
	}
	published := manifest(t, plan.publishedObjects()) + plan.findings.text()
	if strings.Contains(published, value) || !strings.Contains(published, "region: '"+redacted+"'") {
		t.Errorf("the published plan is\n%s\nwant %s instead of the value of the Secret", published, redacted)
	}
	f.secrets[0].(*corev1.Secret).Data["secret"] = []byte("another value")
	if again := f.plan(); again.hash != plan.hash {
		t.Error("the hash of the plan depends on the value of a Secret, which it would help to guess")
	}
}

// Rule: migration-hides-values-of-secrets.
func TestOverrideReplacesValueOfSecret(t *testing.T) {
	f := regionFromSecret(t)
	f.override(f.plan().classes[0].name, `{"providerSpec":{"region":"westeurope"}}`)
	plan := f.plan()
	if losses := plan.findings.withCode(CodeSecretInClass); len(losses) > 0 {
		t.Errorf("got losses %v for a class that contains no value of a Secret", losses)
	}
	if published := manifest(t, plan.publishedObjects()); !strings.Contains(published, "region: westeurope") {
		t.Errorf("the published plan is\n%s\nwant the region of the override", published)
	}
}

// Values of ConfigMaps are not secret. Values that occur only in the credentials are copied into a Secret.
//
// Rule: migration-hides-values-of-secrets.
func TestPlanShowsWhatIsNotSecret(t *testing.T) {
	f := regionFromSecret(t)
	write(t, f.objects[0], map[string]any{"configMapKeyRef": map[string]any{"namespace": "kube-system", "name": "network",
		"key": "region"}}, "spec", "providerConfig", "cloudProviderSpec", "location")
	network := metav1.ObjectMeta{Namespace: "kube-system", Name: "network"}
	f.secrets = append(f.secrets, &corev1.ConfigMap{ObjectMeta: network, Data: map[string]string{"region": "westeurope"}})
	plan := f.plan()
	if losses := plan.findings.withCode(CodeSecretInClass); len(losses) > 0 {
		t.Errorf("got losses %v for a value of a ConfigMap", losses)
	}
	if published := manifest(t, plan.publishedObjects()); !strings.Contains(published, "region: westeurope") {
		t.Errorf("the published plan is\n%s\nwant the region of the ConfigMap", published)
	}
	healthy, _ := gardener(t)
	if losses := healthy.plan().findings.withCode(CodeSecretInClass); len(losses) > 0 {
		t.Errorf("got losses %v for credentials", losses)
	}
}

// A driver may copy a part of the credentials into the class, such as a subscription ID, or transform values.
//
// Rule: migration-hides-values-of-secrets.
func TestPlanHidesWhatDependsOnSecrets(t *testing.T) {
	for name, imported := range map[string]func(id string) string{
		"a part of a text":  func(id string) string { return `{"subnet":"/groups/` + id + `/net","zones":["1","2"]}` },
		"an item of a list": func(id string) string { return `{"zones":["1","` + id + `"],"subnet":"net"}` },
		"a key":             func(id string) string { return `{"tags":{"` + id + `":"x","a":"b"},"zones":["1","2"]}` },
		"a transformed text": func(id string) string {
			return `{"subnet":"` + strings.ToUpper(id[:min(len(id), 3)]) + `","zones":["1","2"]}`
		},
		"a field that only some values set": func(id string) string {
			if id == "cloudprovider/clientID" {
				return `{"subnet":"chosen","zones":["1","2"]}`
			}
			return `{"zones":["1","2"]}`
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := gardener(t)
			f.cloud.imported = func(req provider.ImportRequest) (provider.ImportedSpec, error) {
				id, _ := req.Legacy.Credentials.Get("clientID")
				return provider.ImportedSpec{Spec: []byte(imported(string(id.Reveal())))}, nil
			}
			plan := f.plan()
			if len(plan.findings.withCode(CodeSecretInClass)) == 0 {
				t.Errorf("got no loss %s:\n%s", CodeSecretInClass, plan.findings.text())
			}
			class := plan.classes[0]
			shown, actual := string(class.publishedClass.Spec.ProviderSpec.Raw), string(class.object.Spec.ProviderSpec.Raw)
			if shown == actual || strings.Count(shown, redacted) != 1 || !strings.Contains(shown, `"1"`) ||
				strings.Contains(shown, "clientID") {
				t.Errorf("the plan shows %s instead of %s, want only what depends on the Secret to be redacted", shown, actual)
			}
		})
	}
}

// Rule: migration-hides-values-of-secrets.
func TestDisguiseChangesEachValue(t *testing.T) {
	for _, value := range []string{"true", "false", "0", "westeurope", "пароль", "***", "-----"} {
		if other := disguise(value); other == value {
			t.Errorf("the value %q is not disguised", value)
		}
	}
	if other := disguise(""); other != "" {
		t.Errorf("an empty value becomes %q", other)
	}
}

// Rule: migration-reports-a-cause-once.
func TestMissingSecretOfSeveralClassesIsOneBlocker(t *testing.T) {
	f := regionFromSecret(t)
	f.addCopy("Machine", "worker-2", "larger", func(o *unstructured.Unstructured) {
		write(t, o, "Standard_D8s_v3", "spec", "providerConfig", "cloudProviderSpec", "vmSize")
	})
	f.secrets = nil
	plan := f.plan()
	found := plan.findings.withCode(CodeSecretUnreadable)
	if len(plan.classes) != 2 || len(found) != 1 || found[0].object != "Machine/worker-2" {
		t.Errorf("%d classes use a missing Secret, and the findings are\n%s", len(plan.classes), plan.findings.text())
	}
}
