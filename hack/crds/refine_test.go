package main

import (
	"math/rand/v2"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRefineRejectsFieldsWithoutMaximum(t *testing.T) {
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
		{"field missing in Go",
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

func TestRefineSetsPatternOfPointers(t *testing.T) {
	schema := apiextensionsv1.JSONSchemaProps{Type: "string", Format: "date-time"}
	if err := refine(&schema, reflect.TypeFor[*metav1.Time](), "spec.x"); err != nil {
		t.Fatal(err)
	}
	if schema.Pattern != timePattern || schema.Format != "" || schema.MaxLength == nil {
		t.Errorf("got %+v, want the pattern of times", schema)
	}
}

// Go writes a duration such as 90m as 1h30m0s. The pattern must permit each duration also in the form that Go writes.
func TestDurationPatternPermitsGoFormat(t *testing.T) {
	pattern := regexp.MustCompile(durationPattern)
	for _, permitted := range []string{"0s", "20m", "2h0m0s", "1h30m", "0.5s", "1.001h", "500ms", "30m1h", "9999h9999h",
		"99999h", "99999h59m", "99999h59m59.999s", "99999.999h", "99999s99999ms"} {
		if !pattern.MatchString(permitted) {
			t.Errorf("the pattern refuses %s", permitted)
		}
	}
	for _, forbidden := range []string{"", "100000h", "99999h60m", "99999h99999h", "1m99999h", "0.0001s", "1us", "-1s", "1d",
		"1"} {
		if pattern.MatchString(forbidden) {
			t.Errorf("the pattern permits %s", forbidden)
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	numbers := []string{"0", "1", "59", "60", "999", "9999", "10000", "99999", "0.001", "9999.999", "99999.999"}
	permitted := 0
	for range 200_000 {
		text := ""
		for range 1 + r.IntN(4) {
			text += numbers[r.IntN(len(numbers))] + []string{"h", "m", "s", "ms"}[r.IntN(4)]
		}
		if !pattern.MatchString(text) {
			continue
		}
		permitted++
		d, err := time.ParseDuration(text)
		if err != nil || d >= 100_000*time.Hour || !pattern.MatchString(d.String()) {
			t.Errorf("the pattern permits %s, which Go writes as %s: %v", text, d, err)
		}
	}
	if permitted < 1000 {
		t.Errorf("only %d random durations match the pattern, want at least 1000", permitted)
	}
}
