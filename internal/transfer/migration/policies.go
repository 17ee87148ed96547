package migration

import (
	"context"
	"fmt"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
)

// probeLease is the Lease that probes try to create. The policy always refuses it.
const probeLease = "machinist-fence-probe"

// oldPolicyName returns the name of the policy that protects the old objects.
func oldPolicyName(m *v1beta1.Migration) string {
	return fmt.Sprintf("machinist-migration-old-%s-%s", m.Namespace, m.Name)
}

func newPolicyName(m *v1beta1.Migration) string {
	return fmt.Sprintf("machinist-migration-new-%s-%s", m.Namespace, m.Name)
}

// quoted returns a CEL list of strings.
func quoted(all []string) string {
	var b strings.Builder
	for i, one := range all {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%q", one)
	}
	return "[" + b.String() + "]"
}

func policy(m *v1beta1.Migration, name string, rules []admissionv1.NamedRuleWithOperations,
	condition string, validations ...admissionv1.Validation) *admissionv1.ValidatingAdmissionPolicy {
	fail := admissionv1.Fail
	return &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1beta1.LabelMigration: m.Name,
			"app.kubernetes.io/part-of": "machinist"}},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			FailurePolicy:    &fail,
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: rules},
			MatchConditions:  []admissionv1.MatchCondition{{Name: "in-scope", Expression: condition}},
			Validations:      validations,
		},
	}
}

func rule(group string, resources []string,
	operations ...admissionv1.OperationType) admissionv1.NamedRuleWithOperations {
	return admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: operations,
		Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"*"}, Resources: resources},
	}}
}

// oldPolicy protects the old objects and the Leases of the old controllers from all clients except the migrator. It
// also holds while no migrator runs, and for controllers that the migrator cannot scale down. Requests with the
// annotation of a probe are refused to the migrator too. If allNamespaces is set, the policy protects the old objects
// of all namespaces.
func oldPolicy(m *v1beta1.Migration, user string, leases []v1beta1.MigrationLease,
	allNamespaces bool) *admissionv1.ValidatingAdmissionPolicy {
	all := []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete}
	objects := fmt.Sprintf("request.resource.group == %q", m.Spec.Source)
	if !allNamespaces {
		objects += fmt.Sprintf(` && request.?namespace.orValue("") in ["", %q]`, m.SourceNamespaceOrDefault())
	}
	var names []string
	for _, lease := range append(slices.Clone(leases),
		v1beta1.MigrationLease{Namespace: m.SourceNamespaceOrDefault(), Name: probeLease}) {
		names = append(names, lease.Namespace+"/"+lease.Name)
	}
	// A request that deletes a collection has no name, but the objects that it deletes have names.
	condition := fmt.Sprintf(`%s || request.resource.group == "coordination.k8s.io" && `+
		`(request.?namespace.orValue("") + "/" + (request.operation == "CREATE" ? object : oldObject).metadata.?name.orValue("")) in %s`,
		objects, quoted(names))
	return policy(m, oldPolicyName(m), []admissionv1.NamedRuleWithOperations{
		rule(m.Spec.Source, []string{"*/*"}, all...), rule("coordination.k8s.io", []string{"leases"}, all...),
	}, condition, admissionv1.Validation{
		Expression: fmt.Sprintf("request.userInfo.username == %q && (request.operation == \"DELETE\" || "+
			"!(%q in object.metadata.?annotations.orValue({})))", user, v1beta1.AnnotationFenceProbe),
		Message: fmt.Sprintf("Migration %s/%s takes this fleet over. Until the migration is aborted or completed, only "+
			"its migrator can change the old objects. Remove this object from the tool that applies it, or change "+
			"Machinist's objects after the migration.", m.Namespace, m.Name),
	})
}

// newPolicy protects the objects that the migration created until the phase Cleaning. The data of Secrets may change,
// so that expiring credentials can be renewed. A request to the subresource scale does not contain the labels of the
// object that it scales. So all such requests in the namespace of the migration are refused: a frozen set still deletes
// surplus machines.
func newPolicy(m *v1beta1.Migration, user string) *admissionv1.ValidatingAdmissionPolicy {
	kinds := []string{"machines", "machinesets", "machinedeployments", "machineclasses", "machinehealthchecks",
		"machinesets/scale", "machinedeployments/scale"}
	return policy(m, newPolicyName(m), []admissionv1.NamedRuleWithOperations{
		rule(v1beta1.GroupName, kinds, admissionv1.Update, admissionv1.Delete),
		rule("", []string{"secrets"}, admissionv1.Update, admissionv1.Delete),
	}, fmt.Sprintf(`request.namespace == %q && request.userInfo.username != %q && `+
		`(request.?subResource.orValue("") == "scale" || oldObject.metadata.?labels[?%q].orValue("") == %q && `+
		`oldObject.metadata.?annotations[?%q].hasValue())`,
		m.Namespace, user, v1beta1.LabelMigration, m.Name, v1beta1.AnnotationMigratedFrom),
		admissionv1.Validation{
			// A Secret has no spec. dyn keeps the type checker of the API server from reporting that.
			Expression: fmt.Sprintf(`request.operation != "DELETE" && dyn(object).?spec == dyn(oldObject).?spec && `+
				`object.metadata.?labels[?%[1]q] == oldObject.metadata.?labels[?%[1]q] && `+
				`object.metadata.?labels[?%[2]q] == oldObject.metadata.?labels[?%[2]q] && `+
				`object.metadata.?annotations[?%[3]q] == oldObject.metadata.?annotations[?%[3]q]`,
				v1beta1.LabelMigration, v1beta1.LabelFreeze, v1beta1.AnnotationMigratedFrom),
			Message: fmt.Sprintf("Migration %s/%s created this object, which cannot be deleted or changed until the "+
				"migration is completed. Abort the migration to return to the old system, or commit it first.", m.Namespace,
				m.Name),
		})
}

func bindingOf(p *admissionv1.ValidatingAdmissionPolicy) *admissionv1.ValidatingAdmissionPolicyBinding {
	return &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: p.Name, Labels: p.Labels},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{PolicyName: p.Name,
			ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}},
	}
}

// applyPolicy creates or corrects a policy and its binding, and reports whether it had to change anything.
func (r *Reconciler) applyPolicy(ctx context.Context, want *admissionv1.ValidatingAdmissionPolicy) (changed bool,
	err error) {
	have := &admissionv1.ValidatingAdmissionPolicy{}
	switch err := r.Control.Get(ctx, client.ObjectKeyFromObject(want), have); {
	case apierrors.IsNotFound(err):
		if err := r.Control.Create(ctx, want); err != nil {
			return false, fmt.Errorf("create the policy %s: %w", want.Name, err)
		}
		changed = true
	case err != nil:
		return false, fmt.Errorf("read the policy %s: %w", want.Name, err)
	case !samePolicy(have, want):
		have.Spec = want.Spec
		if err := r.Control.Update(ctx, have); err != nil {
			return false, fmt.Errorf("update the policy %s: %w", want.Name, err)
		}
		changed = true
	}
	binding := bindingOf(want)
	bound := &admissionv1.ValidatingAdmissionPolicyBinding{}
	switch err := r.Control.Get(ctx, client.ObjectKeyFromObject(binding), bound); {
	case apierrors.IsNotFound(err):
		if err := r.Control.Create(ctx, binding); err != nil {
			return false, fmt.Errorf("bind the policy %s: %w", want.Name, err)
		}
		changed = true
	case err != nil:
		return false, fmt.Errorf("read the binding of the policy %s: %w", want.Name, err)
	case bound.Spec.PolicyName != want.Name || bound.Spec.MatchResources != nil || bound.Spec.ParamRef != nil ||
		!equality.Semantic.DeepEqual(bound.Spec.ValidationActions, binding.Spec.ValidationActions):
		bound.Spec = binding.Spec
		if err := r.Control.Update(ctx, bound); err != nil {
			return false, fmt.Errorf("bind the policy %s: %w", want.Name, err)
		}
		changed = true
	}
	return changed, nil
}

// samePolicy compares the fields that the migrator sets, because the API server adds defaults to others.
func samePolicy(have, want *admissionv1.ValidatingAdmissionPolicy) bool {
	a, b := have.Spec, want.Spec
	if a.FailurePolicy == nil || *a.FailurePolicy != *b.FailurePolicy || a.ParamKind != nil || a.MatchConstraints == nil ||
		len(a.MatchConstraints.ExcludeResourceRules) > 0 || len(a.Validations) != len(b.Validations) ||
		!equality.Semantic.DeepEqual(a.MatchConditions, b.MatchConditions) ||
		len(a.MatchConstraints.ResourceRules) != len(b.MatchConstraints.ResourceRules) {
		return false
	}
	selects := func(s *metav1.LabelSelector) bool {
		return s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0
	}
	if selects(a.MatchConstraints.NamespaceSelector) || selects(a.MatchConstraints.ObjectSelector) {
		return false
	}
	for i := range b.Validations {
		have, want := a.Validations[i], b.Validations[i]
		if have.Expression != want.Expression || have.Message != want.Message {
			return false
		}
	}
	for i, r := range b.MatchConstraints.ResourceRules {
		other := a.MatchConstraints.ResourceRules[i]
		if len(other.ResourceNames) > 0 || !equality.Semantic.DeepEqual(other.Operations, r.Operations) ||
			!equality.Semantic.DeepEqual(other.APIGroups, r.APIGroups) ||
			!equality.Semantic.DeepEqual(other.APIVersions, r.APIVersions) ||
			!equality.Semantic.DeepEqual(other.Resources, r.Resources) {
			return false
		}
	}
	return true
}

// removePolicy deletes the binding of a policy before the policy, so that no request is refused for a policy that
// cannot be read.
func (r *Reconciler) removePolicy(ctx context.Context, name string) error {
	for _, object := range []client.Object{
		&admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}},
		&admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}},
	} {
		if err := client.IgnoreNotFound(r.Control.Delete(ctx, object)); err != nil {
			return fmt.Errorf("delete the policy %s: %w", name, err)
		}
	}
	return nil
}
