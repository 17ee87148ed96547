package installer

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
)

// Rule: spec-becomes-chart-values.
func TestSpecBecomesChartValues(t *testing.T) {
	three := int32(3)
	for name, test := range map[string]struct {
		spec v1beta1.ProviderSpec
		want string
	}{
		"an empty spec": {v1beta1.ProviderSpec{}, `{"provider":{"name":"acme"},"replicas":2}`},
		"everything": {v1beta1.ProviderSpec{
			Image: v1beta1.ProviderImage{Registry: "registry.example.com", Repository: "acme", Tag: "v2",
				Digest: "sha256:0", PullPolicy: corev1.PullAlways, PullSecrets: []v1beta1.LocalRef{{Name: "pull"}}},
			Replicas: &three,
			Control:  v1beta1.ProviderControl{KubeconfigSecretRef: &v1beta1.KubeconfigRef{Name: "control"}},
			Target: v1beta1.ProviderTarget{
				KubeconfigSecretRef: &v1beta1.KubeconfigRef{Name: "target", Key: "config"}},
			WatchNamespace: "team", ExtraArgs: []string{"--log-level=debug"},
		}, `{"control":{"kubeconfigSecret":{"key":"kubeconfig","name":"control"}},"extraArgs":["--log-level=debug"],` +
			`"image":{"digest":"sha256:0","pullPolicy":"Always","registry":"registry.example.com","repository":"acme","tag":"v2"},` +
			`"imagePullSecrets":[{"name":"pull"}],"provider":{"name":"acme"},"replicas":3,` +
			`"target":{"kubeconfigSecret":{"key":"config","name":"target"}},"watchNamespace":"team"}`},
		"without a target cluster": {v1beta1.ProviderSpec{Target: v1beta1.ProviderTarget{None: true}},
			`{"provider":{"name":"acme"},"replicas":2,"target":{"none":true}}`},
		"fields override spec.values": {v1beta1.ProviderSpec{
			Image: v1beta1.ProviderImage{Tag: "v2"},
			Values: &runtime.RawExtension{Raw: []byte(
				`{"image":{"tag":"v1","registry":"r"},"nodeSelector":{"a":"b"},"provider":{"name":"x","flags":{"c":1}}}`)},
		}, `{"image":{"registry":"r","tag":"v2"},"nodeSelector":{"a":"b"},"provider":{"flags":{"c":1},"name":"acme"},"replicas":2}`},
	} {
		t.Run(name, func(t *testing.T) {
			values, err := valuesOf(&v1beta1.Provider{Spec: test.spec}, "acme")
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.Marshal(values)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

func TestErrorAboutValueHasItsPath(t *testing.T) {
	p := &v1beta1.Provider{Spec: v1beta1.ProviderSpec{Image: v1beta1.ProviderImage{Tag: "v2"},
		Values: &runtime.RawExtension{Raw: []byte(`{"image":"machinist"}`)}}}
	if _, err := valuesOf(p, "acme"); err == nil || !strings.Contains(err.Error(), "spec.values.image.tag") {
		t.Errorf("got %v", err)
	}
}

// The operator can grant only permissions that it has. To install a migrator, it would need all permissions of the
// migrator.
func TestOperatorInstallsNoMigrator(t *testing.T) {
	p := &v1beta1.Provider{Spec: v1beta1.ProviderSpec{
		Values: &runtime.RawExtension{Raw: []byte(`{"migrator":{"enabled":true}}`)}}}
	if _, err := valuesOf(p, "acme"); err == nil || !strings.Contains(err.Error(), "spec.values.migrator") {
		t.Errorf("got %v", err)
	}
}

// A policy lets the operator write only objects whose names begin with the name of a provider process.
func TestOperatorInstallsOnlyObjectsOfProcess(t *testing.T) {
	for _, key := range []string{"extraObjects", "fullnameOverride", "namespaceOverride"} {
		p := &v1beta1.Provider{Spec: v1beta1.ProviderSpec{
			Values: &runtime.RawExtension{Raw: []byte(`{"` + key + `":"x"}`)}}}
		if _, err := valuesOf(p, "acme"); err == nil || !strings.Contains(err.Error(), "spec.values."+key) {
			t.Errorf("got %v, want an error that names spec.values.%s", err, key)
		}
	}
}

func TestRenderedObjectsAreStamped(t *testing.T) {
	rendered := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": "Deployment", "status": map[string]any{},
		"metadata": map[string]any{"name": "machinist-provider-acme", "namespace": "machinist-system",
			"labels": map[string]any{managedByLabel: "Helm", "a": "b"}},
		"spec": map[string]any{"replicas": int64(2)},
	}}
	p := &v1beta1.Provider{ObjectMeta: metav1.ObjectMeta{Name: "acme", UID: "1"}}
	hash := func() string {
		t.Helper()
		object, err := stamp(rendered, p)
		if err != nil {
			t.Fatal(err)
		}
		labels, _, _ := unstructured.NestedStringMap(object.Object, "spec", "template", "metadata", "labels")
		if object.GetLabels()[managedByLabel] != Name || object.GetLabels()["a"] != "b" ||
			object.GetLabels()[v1beta1.LabelInstalledBy] != "acme" || labels[v1beta1.LabelInstalledBy] != "acme" ||
			!ownedBy(object, "1") || object.Object["status"] != nil {
			t.Errorf("got %v", object.Object)
		}
		return object.GetAnnotations()[v1beta1.AnnotationAppliedHash]
	}
	first := hash()
	if first == "" || hash() != first {
		t.Errorf("the hashes of the same object are %q and %q", first, hash())
	}
	if err := unstructured.SetNestedField(rendered.Object, int64(3), "spec", "replicas"); err != nil {
		t.Fatal(err)
	}
	if hash() == first {
		t.Error("the hash did not change with the object")
	}
	if rendered.GetLabels()[managedByLabel] != "Helm" {
		t.Error("the rendered object was changed")
	}
}
