package api

import (
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/test/env"
)

type jsonPatch struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func tryPatch(t *testing.T, user client.Client, object client.Object, patch ...jsonPatch) error {
	t.Helper()
	body, err := json.Marshal(patch)
	if err != nil {
		t.Fatal(err)
	}
	return user.Patch(t.Context(), object.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, body),
		client.DryRunAll)
}

// fieldPaths returns the JSON paths of all leaf fields of a type. The path of an item of a list has the index 0.
func fieldPaths(of reflect.Type, path string) (paths []string) {
	switch {
	case of.Kind() == reflect.Pointer:
		return fieldPaths(of.Elem(), path)
	case of.Kind() == reflect.Slice && of.Elem().Kind() == reflect.Struct:
		return fieldPaths(of.Elem(), path+"/0")
	case of.Kind() != reflect.Struct:
		return []string{path}
	}
	for i := range of.NumField() {
		field := of.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name != "" {
			name = "/" + name // The JSON of an embedded struct has no separate name.
		}
		paths = append(paths, fieldPaths(field.Type, path+name)...)
	}
	return paths
}

// webhookChanges returns another valid value for each field of a webhook, by JSON path. A process may change only the
// field bundle.
func webhookChanges() (changes map[string]any, bundle string) {
	changes = map[string]any{
		"/name":                           "other.machinist.dev",
		"/clientConfig/url":               "https://attacker.example.com/",
		"/clientConfig/service/namespace": "attacker",
		"/clientConfig/service/name":      "attacker",
		"/clientConfig/service/path":      "/attacker",
		"/clientConfig/service/port":      8443,
		"/clientConfig/caBundle":          []byte("other"),
		"/rules/0/operations":             []string{"*"},
		"/rules/0/apiGroups":              []string{"*"},
		"/rules/0/apiVersions":            []string{"*"},
		"/rules/0/resources":              []string{"*/*"},
		"/rules/0/scope":                  "*",
		"/failurePolicy":                  "Fail",
		"/matchPolicy":                    "Exact",
		"/sideEffects":                    "NoneOnDryRun",
		"/timeoutSeconds":                 30,
		"/reinvocationPolicy":             "IfNeeded",
		"/admissionReviewVersions":        []string{"v1", "v1beta1"},
		"/matchConditions/0/name":         "other",
		"/matchConditions/0/expression":   "1 == 1",
	}
	for _, selector := range []string{"/namespaceSelector", "/objectSelector"} {
		changes[selector+"/matchLabels"] = map[string]string{"other": "b"}
		changes[selector+"/matchExpressions/0/key"] = "other"
		changes[selector+"/matchExpressions/0/operator"] = "NotIn"
		changes[selector+"/matchExpressions/0/values"] = []string{"other"}
	}
	return changes, "/clientConfig/caBundle"
}

// A process may change only the caBundles in its webhook configurations. The test fails if a new version of Kubernetes
// adds a field that webhookChanges does not contain.
//
// Rule: webhooks-limited-by-policy.
func TestProcessChangesOnlyBundlesOfWebhooks(t *testing.T) {
	const name = "machinist-provider-fields"
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"one": "a"},
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "two", Operator: metav1.LabelSelectorOpIn,
			Values: []string{"a"}}}}
	one := map[string]string{"one": "a"}
	meta := metav1.ObjectMeta{Name: name, Annotations: one, Labels: one}
	to := admissionv1.WebhookClientConfig{CABundle: []byte("one"), Service: &admissionv1.ServiceReference{
		Namespace: "machinist-system", Name: name, Path: new("/validate"), Port: new(int32(443))}}
	rules := []admissionv1.RuleWithOperations{{Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule: admissionv1.Rule{APIGroups: []string{"none.example.com"}, APIVersions: []string{"v1"},
			Resources: []string{"things"}, Scope: new(admissionv1.NamespacedScope)}}}
	conditions := []admissionv1.MatchCondition{{Name: "one", Expression: "true"}}
	validating := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.ValidatingWebhook{{
		Name: "one.machinist.dev", ClientConfig: to, Rules: rules, FailurePolicy: new(admissionv1.Ignore),
		MatchPolicy: new(admissionv1.Equivalent), NamespaceSelector: selector, ObjectSelector: selector,
		SideEffects: new(admissionv1.SideEffectClassNone), TimeoutSeconds: new(int32(5)),
		AdmissionReviewVersions: []string{"v1"}, MatchConditions: conditions}}}
	mutating := &admissionv1.MutatingWebhookConfiguration{ObjectMeta: meta, Webhooks: []admissionv1.MutatingWebhook{{
		Name: "one.machinist.dev", ClientConfig: to, Rules: rules, FailurePolicy: new(admissionv1.Ignore),
		MatchPolicy: new(admissionv1.Equivalent), NamespaceSelector: selector, ObjectSelector: selector,
		SideEffects: new(admissionv1.SideEffectClassNone), TimeoutSeconds: new(int32(5)),
		AdmissionReviewVersions: []string{"v1"}, MatchConditions: conditions,
		ReinvocationPolicy: new(admissionv1.NeverReinvocationPolicy)}}}

	process, migrator := asProcess(t, name), asProcess(t, "machinist-migrator-fields")
	admin := env.Client(t)
	changes, bundle := webhookChanges()
	known := map[string]bool{}
	for object, webhook := range map[client.Object]reflect.Type{
		validating: reflect.TypeFor[admissionv1.ValidatingWebhook](),
		mutating:   reflect.TypeFor[admissionv1.MutatingWebhook](),
	} {
		if err := admin.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := admin.Delete(context.Background(), object); err != nil {
				t.Error(err)
			}
		})
		await(t, "the policy for webhooks", func() bool {
			return refusedBy("processes-webhooks", tryPatch(t, process, object, jsonPatch{"add", "/metadata/labels/two", "a"}))
		})
		for _, path := range fieldPaths(webhook, "") {
			known[path] = true
			value, found := changes[path]
			if !found {
				t.Errorf("%s has the field %s, which webhookChanges lacks", webhook, path)
				continue
			}
			patch := []jsonPatch{{"add", "/webhooks/0" + path, value}}
			if path == "/clientConfig/url" {
				patch = append(patch, jsonPatch{Op: "remove", Path: "/webhooks/0/clientConfig/service"})
			}
			if err := tryPatch(t, admin, object, patch...); err != nil {
				t.Errorf("an administrator cannot change %s: %v", path, err)
			}
			switch err := tryPatch(t, process, object, patch...); {
			case path == bundle && err != nil:
				t.Errorf("a process cannot change %s: %v", path, err)
			case path != bundle && !refusedBy("processes-webhooks", err):
				t.Errorf("a process changes %s: got error %v, want a rejection by the policy", path, err)
			}
		}
		another := map[string]any{"name": "two.machinist.dev", "sideEffects": "None",
			"admissionReviewVersions": []string{"v1"}, "clientConfig": map[string]any{"url": "https://attacker.example.com/"}}
		owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "one", UID: "1"}
		for what, patch := range map[string]jsonPatch{
			"adds an annotation":      {"add", "/metadata/annotations/cert-manager.io~1inject-ca-from", "attacker/one"},
			"changes an annotation":   {"add", "/metadata/annotations/one", "b"},
			"removes the annotations": {Op: "remove", Path: "/metadata/annotations"},
			"changes a label":         {"add", "/metadata/labels/one", "b"},
			"removes a label":         {Op: "remove", Path: "/metadata/labels/one"},
			"adds a finalizer":        {"add", "/metadata/finalizers", []string{"example.com/one"}},
			"adds an owner":           {"add", "/metadata/ownerReferences", []metav1.OwnerReference{owner}},
			"removes a field":         {Op: "remove", Path: "/webhooks/0/matchConditions"},
			"adds a webhook":          {"add", "/webhooks/-", another},
			"removes a webhook":       {Op: "remove", Path: "/webhooks/0"},
			"removes all webhooks":    {Op: "remove", Path: "/webhooks"},
		} {
			if err := tryPatch(t, admin, object, patch); err != nil {
				t.Errorf("an administrator cannot send the patch that %s: %v", what, err)
			}
			if err := tryPatch(t, process, object, patch); !refusedBy("processes-webhooks", err) {
				t.Errorf("a process %s: got error %v, want a rejection by the policy", what, err)
			}
		}
	}
	newBundle := jsonPatch{"add", "/webhooks/0" + bundle, changes[bundle]}
	for what, err := range map[string]error{
		"a process deletes its configuration": process.Delete(t.Context(), validating.DeepCopy(), client.DryRunAll),
		"a process creates a configuration": process.Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
			ObjectMeta: metav1.ObjectMeta{Name: name + "-2"}}, client.DryRunAll),
		"a process changes the bundle of another":  tryPatch(t, asProcess(t, name+"-2"), validating, newBundle),
		"a migrator changes the bundle of another": tryPatch(t, migrator, validating, newBundle),
	} {
		if !refusedBy("processes-webhooks", err) {
			t.Errorf("%s: got error %v, want a rejection by the policy", what, err)
		}
	}
	// Another policy restricts which webhook configurations a migrator may delete.
	if err := migrator.Delete(t.Context(), validating.DeepCopy(), client.DryRunAll); !refusedBy("migrator", err) {
		t.Errorf("a migrator deletes a configuration: got error %v, want a rejection by its policy", err)
	}
	for _, path := range slices.Sorted(maps.Keys(changes)) {
		if !known[path] {
			t.Errorf("webhookChanges has the field %s, which webhooks lack", path)
		}
	}
}
