package crd

import (
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"machinist.dev/machinist/config"
)

// rulesOf calls visit for each schema of the CustomResourceDefinitions that has rules.
func rulesOf(visit func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool)) {
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
	for _, crd := range config.CRDs() {
		walk(crd.Spec.Names.Kind, crd.Spec.Versions[0].Schema.OpenAPIV3Schema, true)
	}
}

// What the quick checks let pass, the rules let pass: each rule is tried on each of these values, of what kind ever.
func TestQuickChecksAllowOnlyWhatRulesAllow(t *testing.T) {
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
	passed, refused := 0, 0
	rulesOf(func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool) {
		quick := quickCheck(schema)
		slow := compileRules(schema, root, func(any, any) bool { return false })[0]
		for _, value := range values {
			if _, object := value.(map[string]any); object != (schema.Type == "object") {
				continue
			}
			for _, old := range append(values, nil) {
				if _, object := old.(map[string]any); old != nil && object != (schema.Type == "object") {
					continue
				}
				if !quick(value, old) {
					refused++
					continue
				}
				passed++
				for _, err := range slow(nil, value, old) {
					// A value that lacks what the schema requires does not come as far as the rules.
					if !strings.Contains(err.Detail, "no such key") {
						t.Errorf("%s: %v after %v passed quickly, but: %v", kind, value, old, err)
					}
				}
			}
		}
	})
	if passed < 1000 || refused < 1000 {
		t.Errorf("%d passed and %d were refused: that says little", passed, refused)
	}
}

// A rule without a quick check costs a hundred times as much in each simulated run.
func TestRulesOfEachWriteAreQuick(t *testing.T) {
	rulesOf(func(kind string, schema *apiextensionsv1.JSONSchemaProps, root bool) {
		for _, r := range schema.XValidations {
			if root && quickly(r.Rule) == nil {
				t.Errorf("%s: no quick check for %s", kind, r.Rule)
			}
		}
	})
}
