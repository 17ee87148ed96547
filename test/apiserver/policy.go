package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Validating admission policies run as those of Machinist are written: rules by group, resource and operation, match
// conditions, and validations over request, object and oldObject. Parameters, selectors, audit annotations and message
// expressions are left out. A policy is in force at once, where a real API server takes a moment.

// celEnvironment is that of the expressions. The values are plain JSON, so that a field that is not there is no error
// of types, but one of evaluation, which refuses the request.
var celEnvironment = sync.OnceValues(func() (*celgo.Env, error) {
	return celgo.NewEnv(celgo.OptionalTypes(), celgo.Variable("request", celgo.DynType),
		celgo.Variable("object", celgo.DynType), celgo.Variable("oldObject", celgo.DynType))
})

// celPrograms has the compiled expressions, for all servers.
var celPrograms sync.Map

func celProgram(expression string) (celgo.Program, error) {
	if known, ok := celPrograms.Load(expression); ok {
		return known.(celgo.Program), nil
	}
	env, err := celEnvironment()
	if err != nil {
		return nil, err
	}
	compiled, issues := env.Compile(expression)
	if issues.Err() != nil {
		return nil, fmt.Errorf("compile %s: %w", expression, issues.Err())
	}
	program, err := env.Program(compiled)
	if err != nil {
		return nil, fmt.Errorf("prepare %s: %w", expression, err)
	}
	celPrograms.Store(expression, program)
	return program, nil
}

// userOf returns the name of the user that an actor is: what comes after a blank tells two lives of one process apart.
func userOf(actor string) string {
	user, _, _ := strings.Cut(actor, " ")
	return user
}

// admit asks the policies about a write; old is nil for a creation, and next for a deletion.
func (s *Server) admit(k *kind, req request, operation admissionv1.OperationType, old, next *record) error {
	for _, r := range s.tables[s.registry.policies.index] {
		policy := r.object.(*admissionv1.ValidatingAdmissionPolicy)
		binding := s.bindingOf(policy.Name)
		if binding == "" || !constrains(policy, k, req.sub, operation) {
			continue
		}
		variables, err := admissionVariables(k, req, operation, old, next)
		if err != nil {
			return err
		}
		name := next
		if next == nil {
			name = old
		}
		if why := judge(policy, variables); why != "" {
			refused := apierrors.NewForbidden(k.resource(), name.key.Name, fmt.Errorf(
				"ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy.Name, binding, why))
			refused.ErrStatus.Reason, refused.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
			return refused
		}
	}
	return nil
}

// refused reports whether admission refuses a step of a background controller.
func (s *Server) refused(p step) bool {
	r := s.get(p.kind, p.key)
	switch p.do {
	case deleteDependent, deleteInForeground:
		return s.admit(p.kind, request{actor: GarbageCollector, verb: "delete"}, admissionv1.Delete, r, nil) != nil
	case deleteContent:
		return s.admit(p.kind, request{actor: NamespaceController, verb: "delete"}, admissionv1.Delete, r, nil) != nil
	case dropOwners, orphanDependent, finishOrphaning, finishForeground:
		return s.admit(p.kind, request{actor: GarbageCollector, verb: "patch"}, admissionv1.Update, r, r) != nil
	}
	return false
}

// bindingOf returns the binding that makes a policy deny, "" if there is none.
func (s *Server) bindingOf(policy string) string {
	for _, r := range s.tables[s.registry.bindings.index] {
		b := r.object.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if b.Spec.PolicyName == policy && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			return b.Name
		}
	}
	return ""
}

// constrains reports whether a policy is about such requests.
func constrains(p *admissionv1.ValidatingAdmissionPolicy, k *kind, sub string,
	operation admissionv1.OperationType) bool {
	if p.Spec.MatchConstraints == nil {
		return false
	}
	resource := k.plural
	if sub != "" {
		resource += "/" + sub
	}
	return slices.ContainsFunc(p.Spec.MatchConstraints.ResourceRules, func(r admissionv1.NamedRuleWithOperations) bool {
		return slices.Contains(r.APIGroups, k.gvk.Group) && slices.Contains(r.Operations, operation) &&
			(slices.Contains(r.Resources, resource) || slices.Contains(r.Resources, "*/*"))
	})
}

// admissionVariables are what the expressions see.
func admissionVariables(k *kind, req request, operation admissionv1.OperationType, old, next *record) (map[string]any,
	error) {
	key := client.ObjectKey{}
	variables := map[string]any{"object": nil, "oldObject": nil}
	for name, r := range map[string]*record{"object": next, "oldObject": old} {
		if r == nil {
			continue
		}
		content, err := r.content(k)
		if err != nil {
			return nil, err
		}
		variables[name], key = content, r.key
	}
	request := map[string]any{"operation": string(operation), "userInfo": map[string]any{"username": userOf(req.actor)},
		"resource": map[string]any{"group": k.gvk.Group, "version": k.gvk.Version, "resource": k.plural}}
	if key.Namespace != "" {
		request["namespace"] = key.Namespace
	}
	if operation != admissionv1.Create {
		request["name"] = key.Name
	}
	variables["request"] = request
	return variables, nil
}

// judge returns why a policy refuses a request, "" if it does not.
func judge(p *admissionv1.ValidatingAdmissionPolicy, variables map[string]any) string {
	for _, condition := range p.Spec.MatchConditions {
		if is, err := evaluate(condition.Expression, variables); err != nil {
			return err.Error()
		} else if !is {
			return ""
		}
	}
	for _, validation := range p.Spec.Validations {
		if is, err := evaluate(validation.Expression, variables); err != nil {
			return err.Error()
		} else if !is {
			return validation.Message
		}
	}
	return ""
}

func evaluate(expression string, variables map[string]any) (bool, error) {
	program, err := celProgram(expression)
	if err != nil {
		return false, err
	}
	value, _, err := program.Eval(variables)
	if err != nil {
		return false, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	is, _ := value.Value().(bool)
	return is, nil
}
