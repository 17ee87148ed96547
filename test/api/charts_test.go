package api

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

func TestAPIServerAdmitsObjectsOfCharts(t *testing.T) {
	c := env.Client(t)
	namespace := env.Namespace(t)
	all, err := manifests.RenderMachinist(manifests.Release{Name: "machinist", Namespace: namespace,
		Values: map[string]any{
			"operator": map[string]any{"enabled": true}, "networkPolicy": map[string]any{"enabled": true},
		}})
	if err != nil {
		t.Fatal(err)
	}
	provider, err := manifests.RenderProvider(manifests.Release{Name: "sim", Namespace: namespace,
		Values: map[string]any{"provider": map[string]any{"name": "sim"}, "migrator": map[string]any{"enabled": true,
			"namespaces": []any{namespace}, "sharedNamespaces": []any{metav1.NamespaceSystem}}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range append(all, provider...) {
		applied := client.ApplyConfigurationFromUnstructured(object)
		err := c.Apply(t.Context(), applied, client.FieldOwner("charts-test"), client.ForceOwnership, client.DryRunAll)
		if err != nil {
			t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
		}
	}
}
