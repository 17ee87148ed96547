package sources

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/validation"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	apivalidation "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Other tests install these definitions and create these samples.
func TestDefinitionsAreValidAndServeSamples(t *testing.T) {
	groups, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		namespaced := map[schema.GroupVersionKind]bool{}
		for _, object := range CRDs(group.Name()) {
			var crd apiextensionsv1.CustomResourceDefinition
			read := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation
			if err := read(object.Object, &crd, true); err != nil {
				t.Errorf("%s: %v", object.GetName(), err)
			}
			apiextensionsv1.SetDefaults_CustomResourceDefinition(&crd)
			apiextensionsv1.SetDefaults_CustomResourceDefinitionSpec(&crd.Spec)
			// The API server sets the stored versions when it stores a definition.
			crd.Status.StoredVersions = []string{crd.Spec.Versions[0].Name}
			var internal apiextensions.CustomResourceDefinition
			convert := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition
			if err := convert(&crd, &internal, nil); err != nil {
				t.Fatal(err)
			}
			for _, problem := range validation.ValidateCustomResourceDefinition(t.Context(), &internal) {
				t.Errorf("%s: %v", crd.Name, problem)
			}
			kind := schema.GroupVersionKind{Group: group.Name(), Version: crd.Spec.Versions[0].Name, Kind: crd.Spec.Names.Kind}
			namespaced[kind] = crd.Spec.Scope == apiextensionsv1.NamespaceScoped
		}
		for name, objects := range Samples(group.Name()) {
			for _, object := range objects {
				inNamespace, served := namespaced[object.GroupVersionKind()]
				if !served {
					t.Errorf("%s/%s: no definition serves the kind %s", group.Name(), name, object.GroupVersionKind())
				}
				if inNamespace != (object.GetNamespace() != "") {
					t.Errorf("%s/%s: the namespace %q of %s does not match the scope of its definition", group.Name(), name,
						object.GetNamespace(), object.GetName())
				}
			}
		}
	}
}

// No API server may refuse the samples or remove their fields. Otherwise, the tests without an API server would use
// objects that cannot exist.
func TestDefinitionsKeepFieldsOfCompleteSamples(t *testing.T) {
	groups, err := files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, group := range groups {
		schemas := map[string]*apiextensions.JSONSchemaProps{}
		for _, object := range CRDs(group.Name()) {
			var crd apiextensionsv1.CustomResourceDefinition
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &crd); err != nil {
				t.Fatal(err)
			}
			internal := &apiextensions.JSONSchemaProps{}
			convert := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps
			if err := convert(crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
				t.Fatal(err)
			}
			schemas[crd.Spec.Names.Kind] = internal
		}
		for name, objects := range Samples(group.Name()) {
			if name == "half-broken" || name == "unknown-fields" {
				continue
			}
			for _, object := range objects {
				id := group.Name() + "/" + name + ": " + object.GetKind() + " " + object.GetName()
				structural, err := structuralschema.NewStructural(schemas[object.GetKind()])
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range pruning.PruneWithOptions(object.DeepCopy().Object, structural, true,
					structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}) {
					t.Errorf("%s: the definition does not contain %s", id, path)
				}
				validator, _, err := apivalidation.NewSchemaValidator(schemas[object.GetKind()])
				if err != nil {
					t.Fatal(err)
				}
				for _, problem := range apivalidation.ValidateCustomResource(nil, object.Object, validator) {
					t.Errorf("%s: %v", id, problem)
				}
			}
		}
	}
}
