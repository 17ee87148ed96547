package api

import (
	"fmt"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
	"machinist.dev/machinist/test/env"
)

// If the kind MachineSet were deleted, the garbage collector would delete all Machines and therefore their instances.
// Dry runs are sufficient here, because they pass through admission as well.
//
// Rule: crd-deletion-refused.
func TestCRDDeletionNeedsAnnotation(t *testing.T) {
	scheme := env.Scheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(env.Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	dryDelete := func(crd *apiextensionsv1.CustomResourceDefinition) error {
		return c.Delete(t.Context(), crd.DeepCopy(), client.DryRunAll)
	}
	annotate := func(crd *apiextensionsv1.CustomResourceDefinition, value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata":{"annotations":{%q:%s}}}`, machinistv1.AnnotationAllowDeletion, value)
		if err := c.Patch(t.Context(), crd.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			t.Fatal(err)
		}
	}
	crds := manifests.CRDs()
	await(t, "the policy for CRDs", func() bool { return refusedBy("customresourcedefinition", dryDelete(crds[0])) })
	for _, crd := range crds {
		err := dryDelete(crd)
		if want := "kubectl annotate crd " + crd.Name + " " + machinistv1.AnnotationAllowDeletion + "=true"; err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("delete %s: %v, want a rejection that contains %q", crd.Name, err, want)
		}
		annotate(crd, `"yes"`)
		await(t, crd.Name+" to be protected with a wrong annotation", func() bool {
			return refusedBy("customresourcedefinition", dryDelete(crd))
		})
		annotate(crd, `"true"`)
		await(t, crd.Name+" to become deletable", func() bool { return dryDelete(crd) == nil })
		annotate(crd, "null")
		await(t, crd.Name+" to be protected again", func() bool {
			return refusedBy("customresourcedefinition", dryDelete(crd))
		})
	}
	if err := c.DeleteAllOf(t.Context(), &apiextensionsv1.CustomResourceDefinition{},
		client.DryRunAll); !refusedBy("customresourcedefinition", err) {
		t.Errorf("delete all CRDs: %v, want a rejection", err)
	}

	foreign := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{
					OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object"},
				},
			}},
		},
	}
	if err := c.Create(t.Context(), foreign); err != nil {
		t.Fatal(err)
	}
	if err := c.Delete(t.Context(), foreign); err != nil {
		t.Errorf("delete a CRD of another group: %v", err)
	}
}
