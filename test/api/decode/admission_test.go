// Package decode proves that what the CustomResourceDefinitions admit, Go decodes: one object that does not would blind
// every informer of its kind. It validates in process, with the API server's own code, so that it can try many objects.
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

// kind is a kind of the API group with all that the API server needs to judge an object of it.
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

// admit returns what the API server would store for a request with this body, or why it refuses it. It goes the same
// way: decode, prune, default, validate.
func (k kind) admit(ctx context.Context, body []byte) ([]byte, error) {
	object := map[string]any{}
	if err := utiljson.Unmarshal(body, &object); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	// The API server itself sees to these before the schema comes into play.
	object["apiVersion"], object["kind"] = machinistv1.GroupVersion.String(), k.name
	object["metadata"] = map[string]any{"name": "one", "namespace": "default"}

	structuraldefaulting.Default(object, k.structural)
	structuralpruning.Prune(object, k.structural, true)
	structuraldefaulting.PruneNonNullableNullsWithoutDefaults(object, k.structural)

	errs := validation.ValidateCustomResource(nil, object, k.validator)
	errs = append(errs, structurallisttype.ValidateListSetsAndMaps(nil, k.structural, object)...)
	if len(errs) == 0 { // the rules, which take the most time, do not change the decision
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
