package main

import (
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatHasNoMaximumIsRefused(t *testing.T) {
	text := apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: ptr(int64(5))}
	for _, test := range []struct {
		name   string
		schema apiextensionsv1.JSONSchemaProps
		goType any
		want   string
	}{
		{"string", apiextensionsv1.JSONSchemaProps{Type: "string"}, "", "spec.x has neither maxLength nor enum"},
		{"list", apiextensionsv1.JSONSchemaProps{Type: "array",
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}}, []string{}, "spec.x has no maxItems"},
		{"items", apiextensionsv1.JSONSchemaProps{Type: "array", MaxItems: ptr(int64(5)),
			Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &apiextensionsv1.JSONSchemaProps{Type: "string"}}},
			[]string{}, "spec.x[] has neither"},
		{"map", apiextensionsv1.JSONSchemaProps{Type: "object",
			AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Schema: &text}}, map[string]string{},
			"spec.x has no maxProperties"},
		{"float", apiextensionsv1.JSONSchemaProps{Type: "number"}, 0.5, "spec.x: no rule for a Go float64"},
		{"field that Go does not have",
			apiextensionsv1.JSONSchemaProps{Properties: map[string]apiextensionsv1.JSONSchemaProps{"nope": text}}, struct{}{},
			"has no field nope"},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := refine(&test.schema, reflect.TypeOf(test.goType), "spec.x")
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestImportedTypesAreBoundedBehindPointers(t *testing.T) {
	schema := apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
	if err := refine(&schema, reflect.TypeFor[*metav1.Time](), "spec.x"); err != nil {
		t.Fatal(err)
	}
	if schema.Pattern != timePattern || schema.Format != "" || schema.MaxLength == nil {
		t.Errorf("got %+v", schema)
	}
}
