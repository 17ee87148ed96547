package apiserver

import (
	"encoding/json"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/test/manifests/sources"
)

func oldMachine(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{"apiVersion": "cluster.k8s.io/v1alpha1", "kind": "Machine",
		"metadata": map[string]any{"namespace": "old", "name": name}, "spec": map[string]any{"any": "thing"}}}
}

// The server deletes the definition of a kind only after all objects of that kind.
func TestKindIsServedWhileDefinitionExists(t *testing.T) {
	w := newWorld()
	if err := w.Create(t.Context(), oldMachine("a")); !meta.IsNoMatchError(err) {
		t.Fatalf("create an object without a definition: got %v, want no match", err)
	}
	var definition *apiextensionsv1.CustomResourceDefinition
	for _, u := range sources.CRDs(provider.SourceClusterK8s) {
		d := &apiextensionsv1.CustomResourceDefinition{}
		data, err := u.MarshalJSON()
		w.must(t, err)
		w.must(t, json.Unmarshal(data, d))
		w.must(t, w.Create(t.Context(), d))
		if d.Spec.Names.Kind == "Machine" {
			definition = d
		}
	}
	m := oldMachine("a")
	w.must(t, w.Create(t.Context(), m))
	w.must(t, w.Patch(t.Context(), m, client.RawPatch(types.MergePatchType,
		[]byte(`{"metadata":{"finalizers":["old/finalizer"]},"status":{"phase":"Running"}}`))))
	if got, _, _ := unstructured.NestedString(m.Object, "spec", "any"); got != "thing" || m.Object["status"] != nil {
		t.Errorf("got %v after a patch, want spec.any thing and no status", m.Object)
	}
	w.must(t, w.Delete(t.Context(), definition))
	for w.PendingSteps() > 0 {
		w.Step(0)
	}
	w.must(t, w.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if m.GetDeletionTimestamp() == nil {
		t.Error("the deletion of a definition did not delete the object")
	}
	if err := w.Create(t.Context(), oldMachine("b")); !apierrors.IsForbidden(err) {
		t.Errorf("create an object whose definition is being deleted: got %v, want forbidden", err)
	}
	w.must(t, w.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	for w.PendingSteps() > 0 {
		w.Step(0)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(m), m); !meta.IsNoMatchError(err) {
		t.Errorf("get an object after the deletion of its definition: got %v, want no match", err)
	}
}

func TestPolicyRefusesByUser(t *testing.T) {
	w := newWorld()
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Delete},
		Rule: admissionv1.Rule{APIGroups: []string{"machinist.dev"}, APIVersions: []string{"*"},
			Resources: []string{"machines"}}}}
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "closed"}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{rule}}
	policy.Spec.MatchConditions = []admissionv1.MatchCondition{{Name: "one",
		Expression: `request.?name.orValue("") == "a" || request.operation == "CREATE" && object.metadata.name == "b"`}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: `request.userInfo.username == "friend"`,
		Message: "friends only"}}
	m := machine("a")
	w.must(t, w.Create(t.Context(), m))
	w.must(t, w.Create(t.Context(), policy))
	w.must(t, w.Create(t.Context(), machine("c")))
	w.must(t, w.Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "closed"},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: "closed",
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}))
	for _, err := range []error{w.Delete(t.Context(), m), w.Create(t.Context(), machine("b"))} {
		if err == nil || !strings.Contains(err.Error(), "friends only") || !apierrors.IsInvalid(err) {
			t.Errorf("got %v, want a refusal by the policy", err)
		}
	}
	w.must(t, w.Create(t.Context(), machine("d")))
	w.must(t, w.Server.Client("friend (former)").Delete(t.Context(), m))
}
