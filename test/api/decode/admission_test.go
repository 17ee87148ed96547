// Package decode tests that Go can decode every object that the CustomResourceDefinitions admit. One object that Go
// cannot decode would block all informers of its kind. The tests run the API server's validation code in this
// process, so that they can try many objects.
package decode

import (
	"context"
	"fmt"
	"reflect"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	structuraldefaulting "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	structurallisttype "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	structuralpruning "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"

	machinistv1 "machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
)

type kind struct {
	name       string
	goType     reflect.Type
	schema     *apiextensionsv1.JSONSchemaProps
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *cel.Validator
}

func loadKinds(t testing.TB) []kind {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := machinistv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var kinds []kind
	for _, crd := range manifests.CRDs() {
		k := kind{
			name:   crd.Spec.Names.Kind,
			goType: scheme.AllKnownTypes()[machinistv1.GroupVersion.WithKind(crd.Spec.Names.Kind)],
			schema: crd.Spec.Versions[0].Schema.OpenAPIV3Schema,
		}
		internal := &apiextensions.JSONSchemaProps{}
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(k.schema, internal,
			nil); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		var err error
		if k.structural, err = structuralschema.NewStructural(internal); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if err := structuraldefaulting.PruneDefaults(k.structural); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		if k.validator, _, err = validation.NewSchemaValidator(internal); err != nil {
			t.Fatalf("%s: %v", k.name, err)
		}
		k.rules = cel.NewValidator(k.structural, true, celconfig.PerCallLimit)
		kinds = append(kinds, k)
	}
	return kinds
}

// admit decodes, defaults, prunes and validates an object as the API server does, and returns the stored form.
func (k kind) admit(ctx context.Context, body []byte) ([]byte, error) {
	object := map[string]any{}
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	// Set these fields, because the API server checks these fields before it applies the schema.
	object["apiVersion"], object["kind"] = machinistv1.GroupVersion.String(), k.name
	object["metadata"] = map[string]any{"name": "one", "namespace": "default"}

	structuraldefaulting.Default(object, k.structural)
	structuralpruning.Prune(object, k.structural, true)
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)

	errs := validation.ValidateCustomResource(nil, object, k.validator)
	errs = append(errs, structurallisttype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	if len(errs) == 0 { // Evaluating rules takes the most time, so skip the rules for an invalid object.
		errs, _ = k.rules.Validate(ctx, nil, k.structural, object, nil, celconfig.RuntimeCELCostBudget)
	}
	if len(errs) > 0 {
		return nil, errs.ToAggregate()
	}
	stored, err := utiljson.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode: %w", err)
	}
	return stored, nil
}
