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

// A kind without a Go type is served while its definition is stored, and the objects go before that.
func TestAKindIsServedWhileItsDefinitionIsStored(t *testing.T) {
	w := newWorld()
	if err := w.Create(t.Context(), oldMachine("a")); !meta.IsNoMatchError(err) {
		t.Fatalf("without a definition: %v", err)
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
		t.Errorf("patched %v", m.Object)
	}
	w.must(t, w.Delete(t.Context(), definition))
	for w.Pending() > 0 {
		w.Step(0)
	}
	w.must(t, w.Get(t.Context(), client.ObjectKeyFromObject(m), m))
	if m.GetDeletionTimestamp() == nil {
		t.Error("an object is not deleted with the definition of its kind")
	}
	if err := w.Create(t.Context(), oldMachine("b")); !apierrors.IsForbidden(err) {
		t.Errorf("made of a kind whose definition is being deleted: %v", err)
	}
	w.must(t, w.Patch(t.Context(), m, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))))
	for w.Pending() > 0 {
		w.Step(0)
	}
	if err := w.Get(t.Context(), client.ObjectKeyFromObject(m), m); !meta.IsNoMatchError(err) {
		t.Errorf("the definition is gone: %v", err)
	}
}

// A policy with a binding refuses what its expressions do not let through, by user, also of background controllers.
func TestAPolicyRefusesByUser(t *testing.T) {
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
			t.Errorf("let through or refused for another reason: %v", err)
		}
	}
	w.must(t, w.Create(t.Context(), machine("d")))
	w.must(t, w.Server.Client("friend (former)").Delete(t.Context(), m))
}
