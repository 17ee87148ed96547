package admission

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"machinist.dev/machinist/internal/fleet/autoscaling"
)

// StoreReplicas is the mutating webhook for MachineDeployments and MachineSets. If a request omits spec.replicas,
// StoreReplicas sets the field to the current number of machines. A new object gets the default number of replicas.
// If the autoscaler's bounds exclude the default, the object gets the nearest number that the bounds permit.
//
// The scale subresource needs a stored spec.replicas. If the webhook is not available, the manager stores the field.
type StoreReplicas struct{}

type scalable struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Replicas *int32 `json:"replicas"`
	} `json:"spec"`
}

// Handle implements admission.Handler.
func (StoreReplicas) Handle(_ context.Context, r admission.Request) admission.Response {
	if r.Kind.Kind != "MachineDeployment" && r.Kind.Kind != "MachineSet" {
		return admission.Allowed("")
	}
	var now, before scalable
	if err := json.Unmarshal(r.Object.Raw, &now); err != nil {
		return admission.Errored(http.StatusBadRequest, err)
	}
	if now.Spec.Replicas != nil || now.DeletionTimestamp != nil {
		return admission.Allowed("")
	}
	if len(r.OldObject.Raw) > 0 {
		if err := json.Unmarshal(r.OldObject.Raw, &before); err != nil {
			return admission.Errored(http.StatusBadRequest, err)
		}
		if before.Spec.Replicas == nil {
			return admission.Allowed("") // The manager stores the number of existing machines.
		}
	}
	response := admission.Allowed("")
	response.PatchType = ptr.To(admissionv1.PatchTypeJSONPatch)
	response.Patch = fmt.Appendf(nil, `[{"op":"add","path":"/spec/replicas","value":%d}]`,
		autoscaling.Replicas(now.Annotations, before.Spec.Replicas))
	return response
}
