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

// compileRules returns the checks for the rules of a schema itself, not for those of the schemas in it.
func compileRules(schema *apiextensionsv1.JSONSchemaProps, root bool) []rule {
	rules := make([]rule, len(schema.XValidations))
	for i, v := range schema.XValidations {
		alone := *schema
		alone.XValidations = apiextensionsv1.ValidationRules{v}
		rules[i] = remembered(fieldsOf(v.Rule), compileRule(&alone, root))
	}
	return rules
}

// compileRule returns the check for the only rule of a schema.
func compileRule(schema *apiextensionsv1.JSONSchemaProps, root bool) rule {
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
	return func(path *field.Path, value, old any) field.ErrorList {
		errs, _ := validator().Validate(context.Background(), path, nil, value, old, celconfig.RuntimeCELCostBudget)
		return errs
	}
}

// mostRemembered is how many values a rule remembers.
const mostRemembered = 10000

// remembered returns a rule that remembers the values it kept, by the fields it reads: it says of the same fields what
// it said before, and to evaluate it takes a hundred times as long as to look that up.
func remembered(fields []readField, evaluate rule) rule {
	var mu sync.Mutex
	kept := map[string]bool{}
	return func(path *field.Path, value, old any) field.ErrorList {
		key := keyOf(fields, value, old)
		mu.Lock()
		known := kept[key]
		mu.Unlock()
		if known {
			return nil
		}
		errs := evaluate(path, value, old)
		if len(errs) == 0 {
			mu.Lock()
			defer mu.Unlock()
			if len(kept) >= mostRemembered {
				clear(kept)
			}
			kept[key] = true
		}
		return errs
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
