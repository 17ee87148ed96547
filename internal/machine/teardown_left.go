package machine

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/wording"
)

// leftNamedAfter is the time after which the status of a deletion reports what remains in the cloud. Until then, it is
// normal that a cloud still detaches volumes and network interfaces.
const leftNamedAfter = 3 * time.Minute

// reportRemoving reports that the provider is deleting the instance. After leftNamedAfter, it also reports what remains
// in the cloud.
func (r *removal) reportRemoving(left string) {
	const usual = "The provider is deleting the instance."
	r.operation(v1beta1.OperationDelete, v1beta1.OperationProcessing, usual, "")
	message := usual
	if last := r.machine.Status.LastOperation; left != "" && last != nil && last.Type == v1beta1.OperationDelete &&
		r.now.Sub(r.operationBegan()) >= leftNamedAfter {
		message = "The cloud has not deleted all parts of the instance yet. Remaining: " + wording.Truncate(left, 1024)
	}
	before := meta.FindStatusCondition(r.machine.Status.Conditions, v1beta1.ConditionDeleting)
	if message != usual && (before == nil || before.Message != message) {
		r.warn(v1beta1.ReasonInstanceTerminating, "Delete", message)
	}
	r.deleting(v1beta1.ReasonInstanceTerminating, message)
}
