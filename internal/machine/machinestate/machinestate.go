// Package machinestate defines the states of a Machine. All controllers must agree on these states. For example, a
// MachineDeployment may expect that its MachineSet deletes a certain machine first. If the MachineSet deletes another
// machine, too few machines stay available.
package machinestate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// IsLive reports whether the machine has no deletionTimestamp.
func IsLive(m *v1beta1.Machine) bool { return m.DeletionTimestamp.IsZero() }

// Provider returns the name of the machine's provider if the Machine object contains this name. Otherwise, Provider
// returns "", and the caller must read the name from the class.
func Provider(m *v1beta1.Machine) string {
	name := m.Labels[v1beta1.LabelProvider]
	if name == "" && m.Status.Instance != nil {
		name = m.Status.Instance.Provider
	}
	if name == "" {
		name = m.Spec.Provider
	}
	return name
}

// IsReady reports whether the machine's condition Ready is True.
func IsReady(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
}

// IsUpToDate reports whether the machine's condition UpToDate is True. The instance then matches the spec.
func IsUpToDate(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}

// IsStarting reports whether the machine has never been Running.
func IsStarting(m *v1beta1.Machine) bool {
	switch m.Status.Phase {
	case "", v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned:
		return true
	}
	return false
}

// IsRunning reports whether the phase of the machine is Running or Available.
func IsRunning(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineRunning || m.Status.Phase == v1beta1.MachineAvailable
}

// HasFailed reports whether the machine has failed. The provider's process always sets this phase together with a
// failure reason. If there is no failure reason, another client has written the phase.
func HasFailed(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineFailed && m.Status.FailureReason != ""
}

// FailureOf returns why the machine failed, or "" if it did not fail. The reason is kept while the machine is being
// deleted.
func FailureOf(m *v1beta1.Machine) v1beta1.MachineFailureReason {
	if HasFailed(m) || !IsLive(m) {
		return m.Status.FailureReason
	}
	return ""
}

// HasVanished reports whether the machine failed because its instance is gone. Such a machine cannot recover, cannot
// run pods and cannot be inspected.
func HasVanished(m *v1beta1.Machine) bool { return FailureOf(m) == v1beta1.FailureInstanceVanished }

// IsInterrupted reports whether the cloud has announced that it will reclaim the machine's instance.
func IsInterrupted(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// IsStopped reports whether Machinist stops the instance of the machine, keeps it stopped, or starts it. Such a machine
// is not Ready, and this is no reason to replace it.
func IsStopped(m *v1beta1.Machine) bool {
	if power := m.Status.Power; power != nil {
		return power.Step != v1beta1.PowerStepBooting || m.Spec.PowerState == v1beta1.PowerStopped
	}
	if m.Spec.PowerState != v1beta1.PowerStopped {
		return false
	}
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionPowerStateReached)
	return c == nil || c.Reason != v1beta1.ReasonPowerNotSupported
}

// ToBeReplaced reports whether the MachineSet must replace the machine, because it has failed, is unhealthy or will
// soon lose its instance. Machines that are marked for an external remediator do not count, because the remediator
// replaces them.
func ToBeReplaced(m *v1beta1.Machine) bool { return FailedOrUnhealthy(m) || IsInterrupted(m) }

// FailedOrUnhealthy reports whether the MachineSet must replace the machine because it has failed or is unhealthy.
//
// A machine that Machinist stops or has stopped does not count, unless its instance is gone.
func FailedOrUnhealthy(m *v1beta1.Machine) bool {
	reason := RemediationReason(m)
	rebootFailed := reason == v1beta1.ReasonReplaceAfterReboot && m.Spec.PowerState != v1beta1.PowerStopped
	if IsStopped(m) && !HasVanished(m) && !rebootFailed {
		return false
	}
	return HasFailed(m) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested) &&
			!IsExternalRemediation(reason) && reason != v1beta1.ReasonRebootRequested
}

// IsExternalRemediation reports whether the reason of the condition RemediationRequested leaves a machine to a
// remediator outside Machinist, so that the MachineSet does not replace the machine.
func IsExternalRemediation(reason string) bool {
	return reason == v1beta1.ReasonExternalRemediation || reason == v1beta1.ReasonExternalRemediationFailed
}

// ReplacementExempt reports whether the MachineSet leaves a machine in place although ToBeReplaced is true for it. The
// reason is either an annotation, or too many consecutive replacements that have failed.
func ReplacementExempt(m *v1beta1.Machine) bool {
	_, skip := m.Annotations[v1beta1.AnnotationSkipRemediation]
	return skip || RemediationReason(m) == v1beta1.ReasonRetriesExhausted &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// RemediationReason returns the reason of the condition RemediationRequested, or "" if the machine does not have this
// condition. The reason names the policy that has found the machine unhealthy, or explains why the machine is not
// replaced.
func RemediationReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested); c != nil {
		return c.Reason
	}
	return ""
}

// UnlaunchableCondition returns the condition Launched if it reports a configuration that can never be launched.
// Otherwise, the result is nil. A new machine with the same template would fail too.
func UnlaunchableCondition(m *v1beta1.Machine) *metav1.Condition {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if c == nil || c.Status != metav1.ConditionFalse {
		return nil
	}
	switch c.Reason {
	case v1beta1.ReasonInvalidConfiguration, v1beta1.ReasonUnknownTypeVersion, v1beta1.ReasonClassNotFound,
		v1beta1.ReasonClassDeleting, v1beta1.ReasonCredentialsNotFound, v1beta1.ReasonSecretNotLabelled,
		v1beta1.ReasonUserDataNotFound:
		return c
	}
	return nil
}

// IsPaused reports whether the machine is paused by an annotation of Machinist or of Cluster API.
func IsPaused(m *v1beta1.Machine) bool {
	_, paused := m.Annotations[v1beta1.AnnotationPaused]
	_, pausedToo := m.Annotations[v1beta1.AnnotationClusterAPIPaused]
	return paused || pausedToo
}

// UnsupportedSchema reports whether the labels of an object name a type version that this process does not support.
func UnsupportedSchema(labels map[string]string) bool {
	version, versioned := labels[v1beta1.LabelTypeVersion]
	return versioned && version != v1beta1.TypeVersion
}

// IsUnchangeable reports whether controllers must not change or replace the machine, because it is paused or has an
// unsupported type version.
func IsUnchangeable(m *v1beta1.Machine) bool { return IsPaused(m) || UnsupportedSchema(m.Labels) }

// MarkedForDeletion reports whether an administrator or an autoscaler has added the delete annotation to the machine.
func MarkedForDeletion(m *v1beta1.Machine) bool {
	_, marked := m.Annotations[v1beta1.AnnotationDeleteMachine]
	return marked
}

// HasReplaceAnnotation reports whether the machine has AnnotationReplace. This annotation requests that another
// machine replaces this machine.
func HasReplaceAnnotation(m *v1beta1.Machine) bool {
	_, exchanged := m.Annotations[v1beta1.AnnotationReplace]
	return exchanged
}

// AvailableIn returns the time until the machine becomes available, if it stays Ready. The time is zero or less if the
// machine is available now. If the machine is not Ready, ok is false.
func AvailableIn(m *v1beta1.Machine, minReadySeconds int32, now time.Time) (in time.Duration, ok bool) {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0, false
	}
	if minReadySeconds <= 0 {
		return 0, true // Without minReadySeconds, the result does not depend on clocks.
	}
	return c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now), true
}

// IsAvailable reports whether the machine has been Ready for at least minReadySeconds.
func IsAvailable(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	in, ok := AvailableIn(m, minReadySeconds, now)
	return ok && in <= 0
}
