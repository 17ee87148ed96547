package crd

import (
	"reflect"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"machinist.dev/machinist/internal/install/manifests"
)

func visitRules(visit func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool)) {
	var walk func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool)
	walk = func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool) {
		if len(schema.XValidations) > 0 {
			visit(kind, schema, root)
		}
		for _, p := range schema.Properties {
			walk(kind, &p, false)
		}
		if schema.Items != nil {
			walk(kind, schema.Items.Schema, false)
		}
		if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
			walk(kind, schema.AdditionalProperties.Schema, false)
		}
	}
	for _, crd := range manifests.CRDs() {
		walk(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, true)
	}
}

// A rule with a cache must return the same result as the rule without a cache.
func TestCachedRulesEqualUncachedRules(t *testing.T) {
	var values []any
	for _, text := range []string{
		`{"metadata":{"name":"a"},"spec":{}}`, `{"metadata":{"name":"a.b"},"spec":{"providerID":"sim://1"}}`,
		`{"metadata":{"name":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"},"spec":{"providerID":"sim://2"}}`,
		`{"metadata":{"name":"a"},"spec":{"providerID":""},"status":{"launch":{"step":"Replacing"}}}`,
		`{"spec":{"providerID":"sim://1"}}`, `{"spec":{"providerID":""}}`,
		`{}`, `{"provider":"a"}`, `{"provider":"a","providerSpec":{}}`, `{"classRef":{"name":"a"}}`,
		`{"classRef":{"name":"a"},"provider":"a"}`,
		`{"classRef":{"name":"a"},"providerSpec":{},"credentialsRef":{"name":"a"},"userDataRef":{"name":"a"}}`,
		`{"provider":"b","providerSpec":{"a":1},"userDataRef":{"name":"a"}}`,
		`{"creation":"0s","update":"0s"}`, `{"creation":"1s","update":"1m"}`, `{"creation":"1s","update":"0s"}`,
		`{"nodeStartupTimeout":"0s"}`,
		`{"a":"x","a/b":"y","A":"z"}`, `{"not a key":"x"}`, `{"a.b.c/d":"x"}`, `{"a..b/c":"x"}`, `{"-a":"x"}`, `{"/a":"x"}`,
		`{"a/":"x"}`, `{"a/b/c":"x"}`, `{"":"x"}`, `{"a.":"x"}`, `{"a-.b/c":"x"}`,
		`{"taints":[{"key":"a","effect":"NoSchedule"}]}`,
		`{"taints":[{"key":"a","effect":"NoSchedule"}],"startupTaints":[{"key":"a","effect":"NoSchedule"}]}`,
		`{"selector":{},"template":{}}`,
		`{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}}}`,
		`{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"c"}}}}`,
		`{"selector":{"matchLabels":{}},"template":{}}`,
		`{"selector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"Exists"}]},"template":{"metadata":{}}}`,
		`{"selector":{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]},"template":{"metadata":{"labels":{"a":"b"}}},"progressDeadline":"5s","minReadySeconds":5}`,
		`{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}},"progressDeadline":"5500ms","minReadySeconds":5}`,
		`{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}}},"progressDeadline":"0s"}`,
		`"1h"`, `"100000h"`, `"99999h59m"`, `"1x"`, `""`,
	} {
		var value any
		if err := utiljson.Unmarshal([]byte(text), &value); err != nil {
			t.Fatal(err)
		}
		values = append(values, value)
	}
	valid, invalid := 0, 0
	visitRules(func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool) {
		for i, withCache := range compileRules(schema, root) {
			single := *schema
			single.XValidations = schema.XValidations[i : i+1]
			withoutCache := compileRule(&single, root)
			olds := []any{nil, values[0]}
			if strings.Contains(single.XValidations[0].Rule, "oldSelf") {
				olds = append(values, nil)
			}
			for _, value := range values {
				if _, object := value.(map[string]any); object != (schema.Type == "object") {
					continue
				}
				for _, old := range olds {
					if _, object := old.(map[string]any); old != nil && object != (schema.Type == "object") {
						continue
					}
					got, want := withCache(nil, value, old), withoutCache(nil, value, old)
					if !reflect.DeepEqual(got, want) {
						t.Errorf("%s: rule %s for %v after %v: got %v, want %v", kind, schema.XValidations[i].Rule, value, old, got, want)
					}
					if len(want) == 0 {
						valid++
					} else {
						invalid++
					}
				}
			}
		}
	})
	if valid < 500 || invalid < 500 {
		t.Errorf("got %d valid and %d invalid values, want at least 500 of each", valid, invalid)
	}
}

func TestFieldsOfRules(t *testing.T) {
	for rule, want := range map[string][]readField{
		`has(self.a.b) && self.a.c > 1`:            {{path: []string{"a", "b"}, presence: true}, {path: []string{"a", "c"}}},
		`self.a == oldSelf.a`:                      {{path: []string{"a"}}, {old: true, path: []string{"a"}}},
		`oldSelf.?a.?b.orValue("") == ""`:          {{old: true, path: []string{"a", "b"}}},
		`self.all(k, k.matches('x'))`:              {{path: nil}},
		`self.a.all(k, k in self.b && self.b[k])`:  {{path: []string{"a"}}, {path: []string{"b"}}},
		`self.a.exists_one(k, k.name == self.b.c)`: {{path: []string{"a"}}, {path: []string{"b", "c"}}},
		`duration(self) > duration('0s')`:          {{path: nil}},
	} {
		if got := fieldsOf(rule); !reflect.DeepEqual(got, want) {
			t.Errorf("fields of %s: got %v, want %v", rule, got, want)
		}
	}
}
