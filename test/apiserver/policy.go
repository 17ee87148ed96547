package apiserver

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"

	celgo "github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The server supports the parts of validating admission policies that the policies of migrations use: rules with group,
// resource and operation, match conditions, variables, and validations with request, object, oldObject and params. Parameters
// are ConfigMaps of one namespace that have labels. It ignores other selectors and audit annotations. A policy takes effect
// at once, and so does a parameter. On a real API server, there is a delay.

// celEnvironment returns the environment of the expressions. The values are JSON without types. Therefore a missing
// field is an error of the evaluation, which refuses the request, and not an error of the compilation.
var celEnvironment = sync.OnceValues(func() (*celgo.Env, error) {
	return celgo.NewEnv(celgo.OptionalTypes(), celgo.Variable("request", celgo.DynType),
		celgo.Variable("object", celgo.DynType), celgo.Variable("oldObject", celgo.DynType),
		celgo.Variable("params", celgo.DynType), celgo.Variable("variables", celgo.DynType))
})

// celPrograms caches the compiled expressions of all servers.
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

// userOf returns the user name of an actor. It ends at a blank, because the rest of an actor's name distinguishes the
// restarts of a process.
func userOf(actor string) string {
	user, _, _ := strings.Cut(actor, " ")
	return user
}

// admit evaluates the policies for a write. old is nil for a creation, and next is nil for a deletion.
func (s *Server) admit(k *kind, req request, operation admissionv1.OperationType, old, next *record) error {
	for _, r := range s.tables[s.registry.policies.index] {
		policy := r.object.(*admissionv1.ValidatingAdmissionPolicy)
		if !matches(policy, k, req.sub, operation) {
			continue
		}
		binding := s.bindingOf(policy.Name)
		if binding == nil {
			continue
		}
		for _, params := range s.paramsOf(policy, binding) {
			variables, err := admissionVariables(k, req, operation, old, next)
			if err != nil {
				return err
			}
			variables["params"] = params
			subject := next
			if next == nil {
				subject = old
			}
			if reason := evaluatePolicy(policy, variables); reason != "" {
				refused := apierrors.NewForbidden(k.resource(), subject.key.Name, fmt.Errorf(
					"ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy.Name, binding.Name, reason))
				refused.ErrStatus.Reason, refused.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
				return refused
			}
		}
	}
	return nil
}

// paramsOf returns the parameters with which a policy is evaluated. A policy without parameters is evaluated once.
func (s *Server) paramsOf(p *admissionv1.ValidatingAdmissionPolicy,
	b *admissionv1.ValidatingAdmissionPolicyBinding) (all []any) {
	if p.Spec.ParamKind == nil || b.Spec.ParamRef == nil {
		return []any{nil}
	}
	for _, r := range s.tables[s.registry.configMaps.index] {
		c := r.object.(*corev1.ConfigMap)
		if c.Namespace != b.Spec.ParamRef.Namespace ||
			!labels.SelectorFromSet(b.Spec.ParamRef.Selector.MatchLabels).Matches(labels.Set(c.Labels)) {
			continue
		}
		data := map[string]any{}
		for key, value := range c.Data {
			data[key] = value
		}
		all = append(all, map[string]any{"data": data})
	}
	return all
}

// admissionRefuses reports whether admission refuses a step of a background controller.
func (s *Server) admissionRefuses(p step) bool {
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

// bindingOf returns a binding with which a policy denies requests, or nil if there is none.
func (s *Server) bindingOf(policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	for _, r := range s.tables[s.registry.bindings.index] {
		b := r.object.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if b.Spec.PolicyName == policy && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			return b
		}
	}
	return nil
}

// matches reports whether a policy applies to an operation on a resource.
func matches(p *admissionv1.ValidatingAdmissionPolicy, k *kind, sub string,
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

// admissionVariables returns the variables of the expressions.
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

// evaluatePolicy returns the reason why a policy refuses a request, or "" if it does not refuse it.
func evaluatePolicy(p *admissionv1.ValidatingAdmissionPolicy, input map[string]any) string {
	variables := map[string]any{}
	input["variables"] = variables
	for _, variable := range p.Spec.Variables {
		// An API server evaluates a variable when it is used. So one that has no value is an error only if it is used.
		if value, err := evaluate(variable.Expression, input); err == nil {
			variables[variable.Name] = value
		}
	}
	for _, condition := range p.Spec.MatchConditions {
		if value, err := evaluate(condition.Expression, input); err != nil {
			return err.Error()
		} else if value != types.True {
			return ""
		}
	}
	for _, validation := range p.Spec.Validations {
		value, err := evaluate(validation.Expression, input)
		switch {
		case err != nil:
			return err.Error()
		case value == types.True:
			continue
		case validation.MessageExpression == "":
			return validation.Message
		}
		message, err := evaluate(validation.MessageExpression, input)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(message.Value())
	}
	return ""
}

func evaluate(expression string, variables map[string]any) (ref.Val, error) {
	program, err := celProgram(expression)
	if err != nil {
		return nil, err
	}
	value, _, err := program.Eval(variables)
	if err != nil {
		return nil, fmt.Errorf("evaluate %s: %w", expression, err)
	}
	return value, nil
}
