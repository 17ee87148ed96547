package apiserver

import (
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPolicyRefusesByUser(t *testing.T) {
	w := newTestServer()
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
