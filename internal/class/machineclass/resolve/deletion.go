package resolve

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// DeletionDecision is the time between the deletion of a class and the decision whether instances are still created
// from it. If a tool deletes a class and its fleet at once, the deletion of the Machines begins within this time.
// Machines that are created afterwards wait for a new class.
const DeletionDecision = 10 * time.Second

// DeletionReason returns the reason of the condition Deleting, or "" if the class is not being deleted. Until the
// condition is first written, the reason is DeletionStarted.
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

// CanCreate reports whether instances can be created from the class.
func CanCreate(class *v1beta1.MachineClass) bool {
	reason := DeletionReason(class)
	return reason == "" || reason == v1beta1.ReasonInUse
}

// classDeleting returns the error for the launch of a Machine from a class that is about to be removed.
func classDeleting(class *v1beta1.MachineClass) *Error {
	return errorf(v1beta1.ReasonClassDeleting, "MachineClass %q is being deleted, and no remaining machine has an instance "+
		"of this class. The deletion does not wait for this machine. After the deletion, apply the class again, or name "+
		"another class in the template.", class.Name)
}

func undecided(class *v1beta1.MachineClass) string {
	return fmt.Sprintf("MachineClass %q is being deleted: Machinist decides within %s whether it still serves its machines.",
		class.Name, DeletionDecision)
}

// ReleasesClass reports whether the Machine's class may be deleted before the Machine. The reason ClassDeleting of the
// condition Launched guarantees that no instance is being created, because a launch removes this reason before it calls
// the cloud.
func ReleasesClass(m *v1beta1.Machine) bool {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	return launched != nil && launched.Reason == v1beta1.ReasonClassDeleting && !HasInstance(m)
}

// HasInstance reports whether an instance of the Machine may exist, including an instance that is being replaced.
func HasInstance(m *v1beta1.Machine) bool {
	return m.Spec.ProviderID != "" || m.Status.Instance != nil || m.IsReplacing() || m.Retrying()
}
