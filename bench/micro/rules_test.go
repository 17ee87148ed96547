//go:build !race

package micro

import (
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"

	"machinist.dev/machinist/internal/install/manifests"
)

// rulesBudget is the maximum number of bytes that the API server may allocate to evaluate all rules of a Machine in one
// write. Even a write of the status evaluates all rules. Reading one field of an object allocates memory for every
// possible field: 7 KB for a spec. So the first condition of a rule should check a field that is absent in most
// objects: then the rule ends without further reads.
const rulesBudget = 88_000

const machineOfSet = `{"apiVersion":"machinist.dev/v1beta1","kind":"Machine",
	"metadata":{"namespace":"default","name":"workers-f84x7jv4s-wxvvn","labels":{"pool":"workers"}},
	"spec":{"classRef":{"name":"small"},"providerID":"sim:///1","version":"v1.36.3","node":{"labels":{"pool":"workers"}},
		"timeouts":{"creation":"20m0s","drain":"2h0m0s","update":"20m0s","volumeDetach":"5m0s"}},
	"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","reason":"MachineReady","message":"",
		"observedGeneration":2,"lastTransitionTime":"2026-05-04T12:00:00Z"}]}}`

func TestRulesOfMachineAllocateLittle(t *testing.T) {
	schema := machineSchema(t)
	rules := cel.NewValidator(schema, true, celconfig.PerCallLimit)
	before := map[string]any{}
	if err := utiljson.Unmarshal([]byte(machineOfSet), &before); err != nil {
		t.Fatal(err)
	}
	after := kruntime.DeepCopyJSON(before)
	after["status"].(map[string]any)["phase"] = "Unhealthy"
	got := bytesPerRun(func() {
		correlated := common.NewCorrelatedObject(after, before, &model.Structural{Structural: schema})
		errs, _ := rules.Validate(t.Context(), nil, schema, after, before, celconfig.RuntimeCELCostBudget,
			cel.WithRatcheting(correlated))
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
	})
	t.Logf("%d bytes", got)
	if got > rulesBudget {
		t.Errorf("got %d bytes for the rules of a Machine in each write, want at most %d", got, rulesBudget)
	}
}

func machineProperties(t *testing.T) *apiextensions.JSONSchemaProps {
	crds := manifests.CRDs()
	crd := crds[slices.IndexFunc(crds, func(c *apiextensionsv1.CustomResourceDefinition) bool {
		return c.Spec.Names.Kind == "Machine"
	})]
	internal := &apiextensions.JSONSchemaProps{}
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
		crd.Spec.Versions[0].Schema.OpenAPIV3Schema, internal, nil); err != nil {
		t.Fatal(err)
	}
	return internal
}

func machineSchema(t *testing.T) *structuralschema.Structural {
	schema, err := structuralschema.NewStructural(machineProperties(t))
	if err != nil {
		t.Fatal(err)
	}
	return schema
}
