package examples_test

import (
	"strings"
	"testing"

	"github.com/google/cel-go/cel"
	lua "github.com/yuin/gopher-lua"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/install/manifests"
)

// The first line lists health statuses of Argo CD. The second line lists the statuses of Flux.
const (
	healthy, degraded, suspended, progressing = "Healthy", "Degraded", "Suspended", "Progressing"
	current, failed, inProgress               = "Current", "Failed", "InProgress"
)

func is(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: reason}
}

func isNot(kind, reason string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: metav1.ConditionFalse, Reason: reason}
}

func TestHealthOfObjectsInGitOpsTools(t *testing.T) {
	const (
		ready, stalled, available = v1beta1.ConditionReady, v1beta1.ConditionStalled, v1beta1.ConditionAvailable
		allowed, valid            = v1beta1.ConditionRemediationAllowed, v1beta1.ConditionValid
		completed, stuck          = v1beta1.ConditionCompleted, v1beta1.ConditionStuck
		machinesReady, failure    = v1beta1.ConditionMachinesReady, v1beta1.ConditionReplicaFailure
		progresses, isDegraded    = v1beta1.ConditionProgressing, v1beta1.ConditionDegraded
	)
	scripts, expressions := argoScripts(t), fluxExpressions(t)
	tested := map[string]bool{}
	for _, test := range []struct {
		name, kind string
		// outdated means that the controller has not yet observed the last change of the object.
		outdated   bool
		phase      v1beta1.MachinePhase
		conditions []metav1.Condition
		argo, flux string
	}{
		{name: "complete", kind: "MachineDeployment", conditions: []metav1.Condition{is(ready, v1beta1.ReasonRolloutComplete),
			is(progresses, v1beta1.ReasonNewMachineSetAvailable)}, argo: healthy, flux: current},
		{name: "just changed", kind: "MachineDeployment", outdated: true,
			conditions: []metav1.Condition{is(ready, v1beta1.ReasonRolloutComplete)}, argo: progressing, flux: inProgress},
		{name: "rolling out", kind: "MachineDeployment", conditions: []metav1.Condition{
			isNot(ready, v1beta1.ReasonRollingOut), is(v1beta1.ConditionReconciling, v1beta1.ReasonRollingOut)},
			argo: progressing, flux: inProgress},
		{name: "paused", kind: "MachineDeployment",
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonDeploymentPaused)}, argo: suspended, flux: inProgress},
		{name: "frozen", kind: "MachineDeployment",
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonFrozen)}, argo: suspended, flux: inProgress},
		{name: "stalled", kind: "MachineDeployment", conditions: []metav1.Condition{
			isNot(ready, v1beta1.ReasonRevisionFailing), is(stalled, v1beta1.ReasonRevisionFailing)},
			argo: degraded, flux: failed},

		{name: "complete", kind: "MachineSet",
			conditions: []metav1.Condition{is(machinesReady, v1beta1.ReasonAllMachinesReady)}, argo: healthy, flux: current},
		{name: "scaling up", kind: "MachineSet",
			conditions: []metav1.Condition{isNot(machinesReady, v1beta1.ReasonMachinesNotReady)},
			argo:       progressing, flux: inProgress},
		{name: "a machine cannot be created", kind: "MachineSet", conditions: []metav1.Condition{
			isNot(machinesReady, v1beta1.ReasonMachinesNotReady), is(failure, v1beta1.ReasonMachineCreateFailed)},
			argo: degraded, flux: failed},

		{name: "new", kind: "Machine", outdated: true, argo: progressing, flux: inProgress},
		{name: "waiting for its Node", kind: "Machine", phase: v1beta1.MachineProvisioned,
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonWaitingForNode)}, argo: progressing, flux: inProgress},
		{name: "running", kind: "Machine", phase: v1beta1.MachineRunning,
			conditions: []metav1.Condition{is(ready, v1beta1.ReasonMachineReady)}, argo: healthy, flux: current},
		{name: "unhealthy", kind: "Machine", phase: v1beta1.MachineUnhealthy,
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonNodeNotReady)}, argo: degraded, flux: failed},

		{name: "valid", kind: "MachineClass", conditions: []metav1.Condition{is(ready, v1beta1.ReasonValid)},
			argo: healthy, flux: current},
		{name: "without credentials", kind: "MachineClass",
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonCredentialsNotFound)},
			argo:       progressing, flux: inProgress},
		{name: "invalid", kind: "MachineClass",
			conditions: []metav1.Condition{isNot(ready, v1beta1.ReasonInvalidProviderSpec)}, argo: degraded, flux: failed},

		{name: "active", kind: "MachineHealthCheck",
			conditions: []metav1.Condition{is(allowed, v1beta1.ReasonRemediationAllowed)}, argo: healthy, flux: current},
		{name: "stopped", kind: "MachineHealthCheck",
			conditions: []metav1.Condition{isNot(allowed, v1beta1.ReasonTooManyUnhealthy)}, argo: suspended, flux: inProgress},
		{name: "invalid", kind: "MachineHealthCheck",
			conditions: []metav1.Condition{isNot(allowed, v1beta1.ReasonInvalidSelector)}, argo: degraded, flux: failed},

		{name: "valid", kind: "MachineDisruptionBudget",
			conditions: []metav1.Condition{is(valid, v1beta1.ReasonBudgetUnderstood)}, argo: healthy, flux: current},
		{name: "invalid", kind: "MachineDisruptionBudget",
			conditions: []metav1.Condition{isNot(valid, v1beta1.ReasonInvalidWindow)}, argo: degraded, flux: failed},

		{name: "in progress", kind: "Migration", conditions: []metav1.Condition{isNot(completed, v1beta1.ReasonMigrating),
			isNot(stuck, v1beta1.ReasonNothingInTheWay)}, argo: progressing, flux: inProgress},
		{name: "stuck", kind: "Migration", conditions: []metav1.Condition{isNot(completed, v1beta1.ReasonMigrating),
			is(stuck, v1beta1.ReasonTroubles)}, argo: degraded, flux: failed},
		{name: "aborted", kind: "Migration", conditions: []metav1.Condition{isNot(completed, v1beta1.ReasonAborted)},
			argo: suspended, flux: inProgress},
		{name: "completed", kind: "Migration", conditions: []metav1.Condition{is(completed, v1beta1.ReasonMigrated)},
			argo: healthy, flux: current},

		{name: "running", kind: "Provider", conditions: []metav1.Condition{
			is(available, v1beta1.ReasonMinimumReplicasAvailable), isNot(progresses, v1beta1.ReasonRolloutComplete),
			isNot(isDegraded, v1beta1.ReasonAsDesired)}, argo: healthy, flux: current},
		{name: "rolling out", kind: "Provider", conditions: []metav1.Condition{
			is(available, v1beta1.ReasonMinimumReplicasAvailable), is(progresses, v1beta1.ReasonRollingOut),
			isNot(isDegraded, v1beta1.ReasonAsDesired)}, argo: progressing, flux: inProgress},
		{name: "scaled to zero", kind: "Provider", conditions: []metav1.Condition{
			isNot(available, v1beta1.ReasonScaledToZero), isNot(progresses, v1beta1.ReasonRolloutComplete),
			isNot(isDegraded, v1beta1.ReasonAsDesired)}, argo: suspended, flux: inProgress},
		{name: "degraded", kind: "Provider", conditions: []metav1.Condition{isNot(available, v1beta1.ReasonNotInstalled),
			isNot(progresses, v1beta1.ReasonSecretNotFound), is(isDegraded, v1beta1.ReasonSecretNotFound)},
			argo: degraded, flux: failed},
	} {
		t.Run(test.kind+"/"+test.name, func(t *testing.T) {
			tested[test.kind] = true
			status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&struct {
				ObservedGeneration int64                `json:"observedGeneration"`
				Phase              v1beta1.MachinePhase `json:"phase,omitempty"`
				Conditions         []metav1.Condition   `json:"conditions,omitempty"`
			}{2, test.phase, test.conditions})
			if err != nil {
				t.Fatal(err)
			}
			object := map[string]any{"apiVersion": v1beta1.GroupVersion.String(), "kind": test.kind,
				"metadata": map[string]any{"generation": int64(2)}, "status": status}
			switch {
			case test.outdated && test.conditions == nil:
				delete(object, "status")
			case test.outdated:
				object["metadata"] = map[string]any{"generation": int64(3)}
			}
			if got := argoHealth(t, scripts[test.kind], object); got != test.argo {
				t.Errorf("the health in Argo CD is %s, want %s", got, test.argo)
			}
			if got := fluxStatus(t, expressions[test.kind], object); got != test.flux {
				t.Errorf("the status in Flux is %s, want %s", got, test.flux)
			}
		})
	}
	for _, crd := range manifests.CRDs() {
		if kind := crd.Spec.Names.Kind; !tested[kind] {
			t.Errorf("no test for the health of a %s", kind)
		}
	}
}

func argoScripts(t *testing.T) map[string]string {
	t.Helper()
	data, _, err := unstructured.NestedStringMap(documents(t)["gitops/argocd-health.yaml"][0].Object, "data")
	if err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{}
	for key, script := range data {
		scripts[strings.TrimPrefix(key, "resource.customizations.health."+v1beta1.GroupName+"_")] = script
	}
	return scripts
}

// argoHealth runs a script as Argo CD does: the global variable obj contains the object, and only a few Lua libraries
// are available.
func argoHealth(t *testing.T, script string, object map[string]any) string {
	t.Helper()
	l := lua.NewState(lua.Options{SkipOpenLibs: true})
	defer l.Close()
	for _, library := range []struct {
		name string
		open lua.LGFunction
	}{{lua.LoadLibName, lua.OpenPackage}, {lua.BaseLibName, lua.OpenBase}, {lua.TabLibName, lua.OpenTable}} {
		call := lua.P{Fn: l.NewFunction(library.open), Protect: true}
		if err := l.CallByParam(call, lua.LString(library.name)); err != nil {
			t.Fatal(err)
		}
	}
	l.SetGlobal("obj", luaValue(l, object))
	if err := l.DoString(script); err != nil {
		t.Fatal(err)
	}
	result, ok := l.Get(-1).(*lua.LTable)
	if !ok {
		t.Fatalf("the script returns a %s, want a table", l.Get(-1).Type())
	}
	return lua.LVAsString(result.RawGetString("status"))
}

func luaValue(l *lua.LState, value any) lua.LValue {
	switch v := value.(type) {
	case string:
		return lua.LString(v)
	case int64:
		return lua.LNumber(v)
	case []any:
		table := l.NewTable()
		for _, item := range v {
			table.Append(luaValue(l, item))
		}
		return table
	case map[string]any:
		table := l.NewTable()
		for key, item := range v {
			table.RawSetString(key, luaValue(l, item))
		}
		return table
	}
	return lua.LNil
}

// fluxExpressions returns the expressions for Flux. The outer keys are the kinds, and the inner keys are inProgress,
// failed and current.
func fluxExpressions(t *testing.T) map[string]map[string]any {
	t.Helper()
	checks, _, err := unstructured.NestedSlice(documents(t)["gitops/flux-kustomization.yaml"][0].Object, "spec",
		"healthCheckExprs")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]any{}
	for _, check := range checks {
		expressions := check.(map[string]any)
		all[expressions["kind"].(string)] = expressions
	}
	return all
}

// fluxStatus evaluates expressions as Flux does, without type checks. The result is InProgress if the controller has
// not observed the last change of the object, or if an expression cannot be evaluated.
func fluxStatus(t *testing.T, expressions, object map[string]any) string {
	t.Helper()
	observed, found, _ := unstructured.NestedInt64(object, "status", "observedGeneration")
	generation, _, _ := unstructured.NestedInt64(object, "metadata", "generation")
	if found && observed != generation {
		return inProgress
	}
	env, err := cel.NewEnv()
	if err != nil {
		t.Fatal(err)
	}
	order := []struct{ field, result string }{{"inProgress", inProgress}, {"failed", failed}, {"current", current}}
	for _, e := range order {
		expression, ok := expressions[e.field].(string)
		if !ok {
			continue
		}
		ast, issues := env.Parse(expression)
		if issues.Err() != nil {
			t.Fatal(issues.Err())
		}
		program, err := env.Program(ast)
		if err != nil {
			t.Fatal(err)
		}
		value, _, err := program.Eval(object)
		if err != nil {
			if _, hasStatus := object["status"]; hasStatus {
				t.Errorf("%s: %v", expression, err)
			}
			return inProgress
		}
		if value.Value() == true {
			return e.result
		}
	}
	return inProgress
}
