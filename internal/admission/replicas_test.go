package admission

import (
	"encoding/json"
	"fmt"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Rule: replicas-left-out-are-kept.
func TestOmittedReplicasAreStored(t *testing.T) {
	const bounds = `"annotations":{"machinist.dev/cluster-api-autoscaler-node-group-min-size":"3",` +
		`"machinist.dev/cluster-api-autoscaler-node-group-max-size":"10"}`
	for name, test := range map[string]struct {
		kind, now, before string
		want              string // spec.replicas after the request, or empty if the field is still omitted
	}{
		"new":                        {"MachineDeployment", `{"metadata":{},"spec":{}}`, "", "1"},
		"new, of a group":            {"MachineDeployment", `{"metadata":{` + bounds + `},"spec":{}}`, "", "3"},
		"a new set of a group":       {"MachineSet", `{"metadata":{` + bounds + `},"spec":{}}`, "", "3"},
		"new, with a number":         {"MachineDeployment", `{"metadata":{` + bounds + `},"spec":{"replicas":0}}`, "", "0"},
		"applied without it":         {"MachineDeployment", `{"metadata":{` + bounds + `},"spec":{}}`, `{"spec":{"replicas":5}}`, "5"},
		"applied at zero":            {"MachineSet", `{"metadata":{` + bounds + `},"spec":{}}`, `{"spec":{"replicas":0}}`, "0"},
		"scaled":                     {"MachineSet", `{"metadata":{},"spec":{"replicas":2}}`, `{"spec":{"replicas":5}}`, "2"},
		"never stored":               {"MachineDeployment", `{"metadata":{},"spec":{}}`, `{"spec":{}}`, ""},
		"being deleted":              {"MachineSet", `{"metadata":{"deletionTimestamp":"2026-01-01T00:00:00Z"},"spec":{}}`, `{"spec":{"replicas":5}}`, ""},
		"of a kind without replicas": {"Machine", `{"metadata":{},"spec":{}}`, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{UID: "one",
				Kind: metav1.GroupVersionKind{Kind: test.kind}, Object: runtime.RawExtension{Raw: []byte(test.now)},
				OldObject: runtime.RawExtension{Raw: []byte(test.before)}}}
			response := StoreReplicas{}.Handle(t.Context(), r)
			if err := response.Complete(r); err != nil || !response.Allowed {
				t.Fatalf("response %+v, %v", response, err)
			}
			after := []byte(test.now)
			if len(response.Patch) > 0 {
				patch, err := jsonpatch.DecodePatch(response.Patch)
				if err != nil || response.PatchType == nil || *response.PatchType != admissionv1.PatchTypeJSONPatch {
					t.Fatalf("patch %s of type %v: %v", response.Patch, response.PatchType, err)
				}
				if after, err = patch.Apply(after); err != nil {
					t.Fatal(err)
				}
			}
			var object struct{ Spec map[string]any }
			if err := json.Unmarshal(after, &object); err != nil {
				t.Fatal(err)
			}
			if got := object.Spec["replicas"]; got == nil && test.want != "" || got != nil && fmt.Sprint(got) != test.want {
				t.Errorf("spec.replicas is %v, want %s", got, test.want)
			}
		})
	}
}
