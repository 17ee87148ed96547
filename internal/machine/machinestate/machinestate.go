// Package machinestate defines the states of a Machine for all controllers. Controllers that act on the same machine
// must agree on them. For example, if a deployment expects its set to delete one machine first but the set deletes
// another, too few machines stay available.
package machinestate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Live reports whether the machine has no deletionTimestamp.
func Live(m *v1beta1.Machine) bool { return m.DeletionTimestamp.IsZero() }

// Provider returns the provider that the machine itself names, or "" if only its class could.
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

// Ready reports whether the machine's condition Ready is True.
func Ready(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
}

// UpToDate reports whether the machine's condition UpToDate is True: its instance matches the specification.
func UpToDate(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionUpToDate)
}

// Starting reports whether the machine has not been Running yet.
func Starting(m *v1beta1.Machine) bool {
	switch m.Status.Phase {
	case "", v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned:
		return true
	}
	return false
}

// Running reports whether the machine is in the phase Running or Available.
func Running(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineRunning || m.Status.Phase == v1beta1.MachineAvailable
}

// Failed reports whether the machine failed. The provider process sets the phase together with a reason. A phase Failed
// without a reason was written by another client.
func Failed(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineFailed && m.Status.FailureReason != ""
}

// FailureOf returns why the machine failed, or "" if it did not. The reason stays while the machine is being deleted.
func FailureOf(m *v1beta1.Machine) v1beta1.MachineFailureReason {
	if Failed(m) || !Live(m) {
		return m.Status.FailureReason
	}
	return ""
}

// Vanished reports whether the machine failed because its instance is gone. Such a machine cannot recover, run pods or
// be inspected.
func Vanished(m *v1beta1.Machine) bool { return FailureOf(m) == v1beta1.FailureInstanceVanished }

// Interrupted reports whether the cloud has announced that it will remove the machine's instance.
func Interrupted(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// ToBeReplaced reports whether the machine failed, was found unhealthy or is about to lose its instance, so that its
// set must replace it. Machines that are marked for an external remediator do not count, because it replaces them.
func ToBeReplaced(m *v1beta1.Machine) bool { return FailedOrUnhealthy(m) || Interrupted(m) }

// FailedOrUnhealthy reports whether the machine failed or was found unhealthy, so that its set must replace it.
func FailedOrUnhealthy(m *v1beta1.Machine) bool {
	return Failed(m) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested) &&
			RemediationReason(m) != v1beta1.ReasonExternalRemediation
}

// ReplacementExempt reports whether the machine's set does not replace it although it may be ToBeReplaced: an
// annotation forbids it, or too many replacements in a row have failed.
func ReplacementExempt(m *v1beta1.Machine) bool {
	_, skip := m.Annotations[v1beta1.AnnotationSkipRemediation]
	return skip || RemediationReason(m) == v1beta1.ReasonRetriesExhausted &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// RemediationReason returns the reason of the condition RemediationRequested: the policy that found the machine
// unhealthy, or why the machine is not replaced. It returns "" if the machine has no such condition.
func RemediationReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested); c != nil {
		return c.Reason
	}
	return ""
}

// Unlaunchable returns the condition Launched of a machine whose configuration cannot be launched, nil for any other
// machine. A new machine from the same template would fail as well.
func Unlaunchable(m *v1beta1.Machine) *metav1.Condition {
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

// Paused reports whether an annotation, of Machinist or of Cluster API, pauses the machine.
func Paused(m *v1beta1.Machine) bool {
	_, paused := m.Annotations[v1beta1.AnnotationPaused]
	_, pausedToo := m.Annotations[v1beta1.AnnotationClusterAPIPaused]
	return paused || pausedToo
}

// UnsupportedSchema reports whether an object with these labels has a type version that this process does not support.
func UnsupportedSchema(labels map[string]string) bool {
	version, versioned := labels[v1beta1.LabelTypeVersion]
	return versioned && version != v1beta1.TypeVersion
}

// Unchangeable reports whether no controller may change or replace the machine, because it is Paused or has an
// UnsupportedSchema.
func Unchangeable(m *v1beta1.Machine) bool { return Paused(m) || UnsupportedSchema(m.Labels) }

// MarkedForDeletion reports whether an administrator or an autoscaler has set the delete mark on the machine.
func MarkedForDeletion(m *v1beta1.Machine) bool {
	_, marked := m.Annotations[v1beta1.AnnotationDeleteMachine]
	return marked
}

// Exchanged reports whether the machine is annotated with AnnotationReplace: create another machine and delete this
// one.
func Exchanged(m *v1beta1.Machine) bool {
	_, exchanged := m.Annotations[v1beta1.AnnotationReplace]
	return exchanged
}

// AvailableIn returns how long from now a machine that stays Ready will be available, zero or less if it already is. ok
// is false for a machine that is not Ready.
func AvailableIn(m *v1beta1.Machine, minReadySeconds int32, now time.Time) (in time.Duration, ok bool) {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0, false
	}
	if minReadySeconds <= 0 {
		return 0, true // Independent of clock differences.
	}
	return c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now), true
}

// Available reports whether the machine has been Ready for minReadySeconds.
func Available(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	in, ok := AvailableIn(m, minReadySeconds, now)
	return ok && in <= 0
}
