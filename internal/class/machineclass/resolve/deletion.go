package resolve

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DeletionDecision is how long after the request to delete a class it is decided whether the class still serves its
// Machines. A tool that deletes a class together with its fleet has begun to delete the Machines by then, and what it
// creates in their place waits for the new class instead of holding the old one.
const DeletionDecision = 10 * time.Second

// DeletionReason returns the reason of the condition Deleting of a class: "" while the class is not being deleted. Right
// after the request to delete it, before its controller has written the condition, it is DeletionStarted.
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

// Serves reports whether instances are created from the class.
func Serves(class *v1beta1.MachineClass) bool {
	reason := DeletionReason(class)
	return reason == "" || reason == v1beta1.ReasonInUse
}

// classDeleting says that no instance is created from a class because only Machines without an instance are left that
// would stay.
func classDeleting(class *v1beta1.MachineClass) *Error {
	return errorf(v1beta1.ReasonClassDeleting, "MachineClass %q is being deleted, and no machine that stays has an "+
		"instance of it. The class goes without waiting for this machine. Apply the class again when it is gone, or name "+
		"another class in the template.", class.Name)
}

// undecided says that it is not decided yet whether instances are created from a class.
func undecided(class *v1beta1.MachineClass) string {
	return fmt.Sprintf("MachineClass %q is being deleted: Machinist decides within %s whether it still serves its machines.",
		class.Name, DeletionDecision)
}

// ReleasesClass reports whether the Machine does not hold its class: the status says that nothing was ever asked of the
// cloud that could still take effect. A launch takes this statement back in the API server before it calls the cloud.
func ReleasesClass(m *v1beta1.Machine) bool {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonClassDeleting && !HasInstance(m)
}

// HasInstance reports whether an instance is recorded in the Machine, or is being replaced.
func HasInstance(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" || m.Status.Instance != nil || m.Replacing() || m.Retrying()
}
