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

type rule func(path *field.Path, value, old any) field.ErrorList

func compileRules(schema *apiextensionsv1.JSONSchemaProps, root bool) []rule {
	rules := make([]rule, len(schema.XValidations))
	for i, v := range schema.XValidations {
		single := *schema
		single.XValidations = apiextensionsv1.ValidationRules{v}
		rules[i] = cached(fieldsOf(v.Rule), compileRule(&single, root))
	}
	return rules
}

func compileRule(schema *apiextensionsv1.JSONSchemaProps, root bool) rule {
	// Compile a rule only when it is used, because compiling is slow and most programs use few rules.
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

const maxCached = 10000

// cached returns a rule that caches valid values. The cache key contains only the fields that the rule reads.
// Evaluating a rule takes about 100 times as long as a cache lookup.
func cached(fields []readField, evaluate rule) rule {
	var mu sync.Mutex
	valid := map[string]bool{}
	return func(path *field.Path, value, old any) field.ErrorList {
		key := keyOf(fields, value, old)
		mu.Lock()
		known := valid[key]
		mu.Unlock()
		if known {
			return nil
		}
		errs := evaluate(path, value, old)
		if len(errs) == 0 {
			mu.Lock()
			defer mu.Unlock()
			if len(valid) >= maxCached {
				clear(valid)
			}
			valid[key] = true
		}
		return errs
	}
}

func onlyOwnRules(s *structuralschema.Structural) *structuralschema.Structural {
	own := s.XValidations
	(&structuralschema.Visitor{Structural: func(s *structuralschema.Structural) bool {
		s.XValidations = nil
		return true
	}}).Visit(s)
	s.XValidations = own
	return s
}
