//go:build !race

package micro

import (
	"testing"

	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel/model"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apiserver/pkg/cel/common"
)

// schemaBudget is the maximum number of bytes that the API server may allocate to validate an update of a Machine.
// decodingBudget is the limit for defaulting and pruning, which happen several times per write. Both limits are
// slightly above the current values.
//
// The allocated memory grows with the number of fields that are set. For example, the API server allocates 28 KB to
// validate one condition. The API server also compares the old object with the new one. For each field of the object,
// this comparison allocates memory in proportion to the number of fields in the schema. So even a rarely used status
// field makes every write of every Machine more expensive.
const (
	schemaBudget   = 510_000
	decodingBudget = 45_000
)

// machineBeingDeleted is a Machine at the end of its life, when it has the most fields.
const machineBeingDeleted = `{"apiVersion":"machinist.dev/v1beta1","kind":"Machine",
	"metadata":{"namespace":"default","name":"workers-f84x7jv4s-wxvvn","labels":{"pool":"workers"}},
	"spec":{"classRef":{"name":"small"},"providerID":"sim:///1","version":"v1.36.3","node":{"labels":{"pool":"workers"}},
		"timeouts":{"creation":"20m0s","drain":"2h0m0s","update":"20m0s","volumeDetach":"5m0s"}},
	"status":{"phase":"Deleting","observedGeneration":3,"version":"v1.36.3","launch":{"attempt":1},
		"applied":{"className":"small","providerSpecHash":"abc","version":"v1.36.3"},
		"addresses":[{"type":"InternalIP","address":"10.0.0.1"},{"type":"Hostname","address":"workers-1"}],
		"nodeRef":{"name":"workers-1","uid":"b"},"nodeTemplate":{"nodeUID":"b","labels":["pool"]},
		"instance":{"provider":"sim","region":"r","zone":"z","type":"t","state":"Running","nodeName":"workers-1",
			"launchTime":"2026-05-04T12:00:00Z"},
		"lastOperation":{"type":"Delete","state":"Processing","description":"x","lastUpdateTime":"2026-05-04T12:00:00Z"}}}`

func fullMachine(t *testing.T) map[string]any {
	machine := map[string]any{}
	if err := utiljson.Unmarshal([]byte(machineBeingDeleted), &machine); err != nil {
		t.Fatal(err)
	}
	var conditions []any
	for _, kind := range []string{"Launched", "Registered", "NodeHealthy", "UpToDate", "Drained", "VolumesDetached",
		"Deleting", "Ready"} {
		conditions = append(conditions, map[string]any{"type": kind, "status": "True", "reason": "Reason", "message": "",
			"observedGeneration": int64(2), "lastTransitionTime": "2026-05-04T12:00:00Z"})
	}
	machine["status"].(map[string]any)["conditions"] = conditions
	return machine
}

func TestSchemaOfMachineAllocatesLittle(t *testing.T) {
	schema := machineSchema(t)
	validator, _, err := validation.NewSchemaValidator(machineProperties(t))
	if err != nil {
		t.Fatal(err)
	}
	before := fullMachine(t)
	after := kruntime.DeepCopyJSON(before)
	validated := bytesPerRun(func() {
		correlated := common.NewCorrelatedObject(after, before, &model.Structural{Structural: schema})
		if result := validator.ValidateUpdate(after, before, validation.WithRatcheting(correlated)); !result.IsValid() {
			t.Fatal(result.AsError())
		}
	})
	decoded := bytesPerRun(func() {
		pruning.Prune(after, schema, true)
		defaulting.Default(after, schema)
	})
	t.Logf("%d bytes to validate, %d to decode", validated, decoded)
	if validated > schemaBudget || decoded > decodingBudget {
		t.Errorf("got %d bytes for the schema of a Machine in each update and %d in each decoding, want at most %d and %d",
			validated, decoded, schemaBudget, decodingBudget)
	}
}
