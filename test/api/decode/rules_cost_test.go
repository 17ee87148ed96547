package decode

import (
	"runtime"
	"slices"
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"k8s.io/apiserver/pkg/cel/common"
)

// rulesBudget is how many bytes the API server may allocate to evaluate the rules of a Machine at a write: a little
// more than it does. All of them are evaluated at every write, of the status too. To read one field of an object takes
// as many bytes as the object has fields that it could have, which is 7 KB in a spec: so a rule reads the field first
// that is mostly absent.
const rulesBudget = 85_000

// machineOfASet is a Machine as a set and its provider write it.
const machineOfASet = `{"apiVersion":"machinist.dev/v1beta1","kind":"Machine",
	"metadata":{"namespace":"default","name":"workers-f84x7jv4s-wxvvn","labels":{"pool":"workers"}},
	"spec":{"classRef":{"name":"small"},"providerID":"sim:///1","version":"v1.36.3","node":{"labels":{"pool":"workers"}},
		"timeouts":{"creation":"20m0s","drain":"2h0m0s","update":"20m0s","volumeDetach":"5m0s"}},
	"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True","reason":"MachineReady","message":"",
		"observedGeneration":2,"lastTransitionTime":"2026-05-04T12:00:00Z"}]}}`

func TestTheRulesOfAMachineCostAWriteLittle(t *testing.T) {
	kinds := loadKinds(t)
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == "Machine" })]
	before := map[string]any{}
	if err := utiljson.Unmarshal([]byte(machineOfASet), &before); err != nil {
		t.Fatal(err)
	}
	after := kruntime.DeepCopyJSON(before)
	after["status"].(map[string]any)["phase"] = "Unhealthy"
	const times = 100
	var began, ended runtime.MemStats
	for round := range 2 { // The first one compiles what is compiled once.
		if round == 1 {
			runtime.ReadMemStats(&began)
		}
		for range times {
			correlated := common.NewCorrelatedObject(after, before, &model.Structural{Structural: k.structural})
			errs, _ := k.rules.Validate(t.Context(), nil, k.structural, after, before, celconfig.RuntimeCELCostBudget,
				cel.WithRatcheting(correlated))
			if len(errs) > 0 {
				t.Fatal(errs.ToAggregate())
			}
		}
	}
	runtime.ReadMemStats(&ended)
	got := (ended.TotalAlloc - began.TotalAlloc) / times
	t.Logf("%d bytes", got)
	if got > rulesBudget {
		t.Errorf("the rules of a Machine take %d bytes at each write, want at most %d", got, rulesBudget)
	}
}
