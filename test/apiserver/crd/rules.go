package crd

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
)

// rule checks a value by rules of its schema. old is nil if there was none.
type rule func(path *field.Path, value, old any) field.ErrorList

// compileRules returns the checks for the rules of a schema itself, not for those of the schemas in it. They are spared
// values of which kept says that they keep all of them.
func compileRules(schema *apiextensionsv1.JSONSchemaProps, root bool, kept func(value, old any) bool) []rule {
	if len(schema.XValidations) == 0 {
		return nil
	}
	// Most programs never come to most rules, and each takes a while to compile.
	validator := sync.OnceValue(func() *cel.Validator {
		var internal apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(schema, &internal,
			nil); err != nil {
			panic(fmt.Sprintf("convert a schema: %v", err))
		}
		structural, err := structuralschema.NewStructural(&internal)
		if err != nil {
			panic(fmt.Sprintf("read a schema: %v", err))
		}
		return cel.NewValidator(onlyOwnRules(structural), root, celconfig.PerCallLimit)
	})
	return []rule{func(path *field.Path, value, old any) field.ErrorList {
		if kept(value, old) {
			return nil
		}
		errs, _ := validator().Validate(context.Background(), path, nil, value, old, celconfig.RuntimeCELCostBudget)
		return errs
	}}
}

// quickCheck returns a check that says yes only of values that keep all rules of the schema itself.
func quickCheck(schema *apiextensionsv1.JSONSchemaProps) func(value, old any) bool {
	if len(schema.XValidations) == 1 && schema.XValidations[0].Rule == shortDuration {
		return func(value, _ any) bool { return isShort(value) }
	}
	var checks []quick
	for _, r := range schema.XValidations {
		check := quickly(r.Rule)
		if check == nil {
			return func(any, any) bool { return false }
		}
		checks = append(checks, check)
	}
	return func(value, old any) bool {
		object, ok := value.(map[string]any)
		if !ok {
			return false
		}
		before, _ := old.(map[string]any)
		for _, check := range checks {
			if !check(object, before) {
				return false
			}
		}
		return true
	}
}

// onlyOwnRules removes the rules of all schemas within one.
func onlyOwnRules(s *structuralschema.Structural) *structuralschema.Structural {
	own := s.XValidations
	(&structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		s.XValidations = nil
		return true
	}}).Visit(s)
	s.XValidations = own
	return s
}
