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

// The server supports the parts of ValidatingAdmissionPolicies that migrations use: rules with group, resource and
// operation, match conditions, variables, and validations with request, object, oldObject and params. The parameters
// are ConfigMaps in one namespace, selected by labels. Other selectors and audit annotations are ignored. Unlike on a
// real API server, policies and parameters take effect immediately.

// celEnvironment returns the environment of the expressions. The values are untyped JSON. So an expression that reads a
// missing field compiles, but its evaluation fails, which refuses the request.
var celEnvironment = sync.OnceValues(func() (*celgo.Env, error) {
	return celgo.NewEnv(celgo.OptionalTypes(), celgo.Variable("request", celgo.DynType),
		celgo.Variable("object", celgo.DynType), celgo.Variable("oldObject", celgo.DynType),
		celgo.Variable("params", celgo.DynType), celgo.Variable("variables", celgo.DynType))
})

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

// userOf returns the user name of an actor, which ends at the first space. The text after the space distinguishes the
// runs of a process.
func userOf(actor string) string {
	user, _, _ := strings.Cut(actor, " ")
	return user
}

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
		subject := next
		if next == nil {
			subject = old
		}
		refused := func(reason string) error {
			err := apierrors.NewForbidden(k.resource(), subject.key.Name, fmt.Errorf(
				"ValidatingAdmissionPolicy '%s' with binding '%s' denied request: %s", policy.Name, binding.Name, reason))
			err.ErrStatus.Reason, err.ErrStatus.Code = metav1.StatusReasonInvalid, http.StatusUnprocessableEntity
			return err
		}
		all := s.paramsOf(policy, binding)
		if len(all) == 0 && *binding.Spec.ParamRef.ParameterNotFoundAction == admissionv1.DenyAction {
			return refused("no params found")
		}
		for _, params := range all {
			variables, err := admissionVariables(k, req, operation, old, next)
			if err != nil {
				return err
			}
			variables["params"] = params
			if reason := evaluatePolicy(policy, variables); reason != "" {
				return refused(reason)
			}
		}
	}
	return nil
}

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
		all = append(all, map[string]any{"metadata": map[string]any{"name": c.Name}, "data": data})
	}
	return all
}

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

func (s *Server) bindingOf(policy string) *admissionv1.ValidatingAdmissionPolicyBinding {
	for _, r := range s.tables[s.registry.bindings.index] {
		b := r.object.(*admissionv1.ValidatingAdmissionPolicyBinding)
		if b.Spec.PolicyName == policy && slices.Contains(b.Spec.ValidationActions, admissionv1.Deny) {
			return b
		}
	}
	return nil
}

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
	if req.sub != "" {
		request["subResource"] = req.sub
	}
	if operation != admissionv1.Create {
		request["name"] = key.Name
	}
	variables["request"] = request
	return variables, nil
}

func evaluatePolicy(p *admissionv1.ValidatingAdmissionPolicy, input map[string]any) string {
	variables := map[string]any{}
	input["variables"] = variables
	for _, variable := range p.Spec.Variables {
		// A real API server evaluates a variable only when an expression uses it. So an error in a variable matters
		// only if an expression uses the variable.
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
