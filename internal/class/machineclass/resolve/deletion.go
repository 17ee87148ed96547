package resolve

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DeletionDecision is the time between the request to delete a class and the decision whether the class still serves
// its Machines. If a tool deletes a class together with its fleet, the tool begins to delete the Machines within
// this time. If the tool then creates new Machines, they wait for the new class and do not prevent the deletion of
// the old class.
const DeletionDecision = 10 * time.Second

// DeletionReason returns the reason of the condition Deleting of a class. It is empty while the class is not being
// deleted. Between the request to delete the class and the first write of the condition, the reason is DeletionStarted.
func DeletionReason(class *v1beta1.MachineClass) string {
	if class.DeletionTimestamp.IsZero() {
		return ""
	}
	if c := meta.FindStatusCondition(class.Status.Conditions, v1beta1.ConditionDeleting); c != nil &&
		c.Status == metav1.ConditionTrue {
		return c.Reason
	}
	return v1beta1.ReasonDeletionStarted
}

// Serves reports whether instances can be created from the class.
func Serves(class *v1beta1.MachineClass) bool {
	reason := DeletionReason(class)
	return reason == "" || reason == v1beta1.ReasonInUse
}

// classDeleting returns the error for a Machine whose class is being deleted and no longer serves, because no Machine
// has an instance of the class.
func classDeleting(class *v1beta1.MachineClass) *Error {
	return errorf(v1beta1.ReasonClassDeleting, "MachineClass %q is being deleted, and no remaining machine has an instance "+
		"of this class. The deletion does not wait for this machine. After the deletion, apply the class again, or name "+
		"another class in the template.", class.Name)
}

// undecided returns the message for a class whose deletion was requested less than DeletionDecision ago.
func undecided(class *v1beta1.MachineClass) string {
	return fmt.Sprintf("MachineClass %q is being deleted: Machinist decides within %s whether it still serves its machines.",
		class.Name, DeletionDecision)
}

// ReleasesClass reports whether the class of the Machine may be deleted before the Machine is deleted. This is the
// case if the status of the Machine states that no call to the cloud can still create an instance. A launch removes
// this statement from the status in the API server before it calls the cloud.
func ReleasesClass(m *v1beta1.Machine) bool {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonClassDeleting && !HasInstance(m)
}

// HasInstance reports whether the Machine has a recorded instance, or an instance that is being replaced.
func HasInstance(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" || m.Status.Instance != nil || m.Replacing() || m.Retrying()
}
