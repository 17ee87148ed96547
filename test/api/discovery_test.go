package api

import (
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/env"
)

func TestShortNamesAndCategory(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(env.Config())
	if err != nil {
		t.Fatal(err)
	}
	resources, err := d.ServerResourcesForGroupVersion(machinistv1.GroupVersion.String())
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]metav1.APIResource{}
	for _, r := range resources.APIResources {
		found[r.Name] = r
	}
	for plural, short := range map[string]string{
		"machineclasses": "mclass", "machines": "ma", "machinesets": "ms", "machinedeployments": "md",
		"machinehealthchecks": "mhc", "machinedisruptionbudgets": "mdb", "providers": "mp",
	} {
		r := found[plural]
		if !slices.Contains(r.ShortNames, short) || !slices.Contains(r.Categories, "machinist") || r.Namespaced == (plural == "providers") {
			t.Errorf("%s: short names %v, categories %v, namespaced %t", plural, r.ShortNames, r.Categories, r.Namespaced)
		}
		if _, ok := found[plural+"/status"]; !ok {
			t.Errorf("%s has no subresource status", plural)
		}
		_, scales := found[plural+"/scale"]
		if want := plural == "machinesets" || plural == "machinedeployments"; scales != want {
			t.Errorf("%s: got subresource scale %t, want %t", plural, scales, want)
		}
	}
}

func restClient(t *testing.T) *rest.RESTClient {
	t.Helper()
	config := env.Config()
	config.APIPath = "/apis"
	config.GroupVersion = &schema.GroupVersion{Group: machinistv1.GroupName, Version: machinistv1.Version}
	scheme := env.Scheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"})
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	c, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
