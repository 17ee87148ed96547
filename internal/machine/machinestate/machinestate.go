// Package machinestate defines in which state a Machine is, for all controllers. Controllers that act upon the same
// machine must agree: if a deployment counts on its set deleting one machine first and the set deletes another first,
// too few machines stay available.
package machinestate

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// Live reports whether the machine has no deletionTimestamp.
func Live(m *v1beta1.Machine) bool { return m.DeletionTimestamp.IsZero() }

// Provider returns the provider that a machine itself names, "" where only its class could.
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

// UpToDate reports whether the machine's condition UpToDate is True: its instance is as specified.
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

// Failed reports whether the machine failed. Its provider says why with the phase: a phase without that is not its own.
func Failed(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineFailed && m.Status.FailureReason != ""
}

// FailureOf returns why the machine failed, "" if it did not. The reason stays while the machine is being deleted.
func FailureOf(m *v1beta1.Machine) v1beta1.MachineFailureReason {
	if Failed(m) || !Live(m) {
		return m.Status.FailureReason
	}
	return ""
}

// Vanished reports whether the machine failed because its instance is gone: nothing is left that could recover, run
// pods or be inspected.
func Vanished(m *v1beta1.Machine) bool { return FailureOf(m) == v1beta1.FailureInstanceVanished }

// Interrupted reports whether the cloud has announced that it will remove the machine's instance.
func Interrupted(m *v1beta1.Machine) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// ToBeReplaced reports whether the machine failed, was found unhealthy or is about to lose its instance, and its set
// must replace it. An external remediator replaces the machines that are marked for it.
func ToBeReplaced(m *v1beta1.Machine) bool { return FailedOrUnhealthy(m) || Interrupted(m) }

// FailedOrUnhealthy reports whether the machine failed or was found unhealthy, and its set must replace it.
func FailedOrUnhealthy(m *v1beta1.Machine) bool {
	return Failed(m) ||
		meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested) &&
			RemediationReason(m) != v1beta1.ReasonExternalRemediation
}

// ReplacementExempt reports whether the machine's set does not replace it although it may be ToBeReplaced: a person
// forbids it, or too many machines before it were replaced, one after the other.
func ReplacementExempt(m *v1beta1.Machine) bool {
	_, skip := m.Annotations[v1beta1.AnnotationSkipRemediation]
	return skip || RemediationReason(m) == v1beta1.ReasonRetriesExhausted &&
		!meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
}

// RemediationReason returns the reason of the condition RemediationRequested: the policy that found the machine
// unhealthy, or why it is not replaced; "" if the machine has no such condition.
func RemediationReason(m *v1beta1.Machine) string {
	if c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested); c != nil {
		return c.Reason
	}
	return ""
}

// Unlaunchable returns the condition Launched of a machine whose configuration cannot be launched, nil for any other
// machine. A new machine of the same template would fail alike.
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

// Paused reports whether a person, or Cluster API, asked for nothing to be done about the machine.
func Paused(m *v1beta1.Machine) bool {
	_, paused := m.Annotations[v1beta1.AnnotationPaused]
	_, pausedToo := m.Annotations[v1beta1.AnnotationClusterAPIPaused]
	return paused || pausedToo
}

// UnsupportedSchema reports whether an object with these labels was written for a schema that this process does not
// know.
func UnsupportedSchema(labels map[string]string) bool {
	version, versioned := labels[v1beta1.LabelTypeVersion]
	return versioned && version != v1beta1.TypeVersion
}

// Unchangeable reports whether no controller may change the machine or replace it: it is Paused or has an
// UnsupportedSchema.
func Unchangeable(m *v1beta1.Machine) bool { return Paused(m) || UnsupportedSchema(m.Labels) }

// MarkedForDeletion reports whether a person or an autoscaler annotated the machine to be deleted first.
func MarkedForDeletion(m *v1beta1.Machine) bool {
	_, marked := m.Annotations[v1beta1.AnnotationDeleteMachine]
	return marked
}

// Exchanged reports whether another machine is to take the place of this one, by AnnotationReplace.
func Exchanged(m *v1beta1.Machine) bool {
	_, exchanged := m.Annotations[v1beta1.AnnotationReplace]
	return exchanged
}

// AvailableIn returns how long from now a machine that stays Ready will be available; zero or less if it is already. It
// is false for a machine that is not Ready.
func AvailableIn(m *v1beta1.Machine, minReadySeconds int32, now time.Time) (time.Duration, bool) {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if c == nil || c.Status != metav1.ConditionTrue {
		return 0, false
	}
	if minReadySeconds <= 0 {
		return 0, true // Whatever the clocks say.
	}
	return c.LastTransitionTime.Add(time.Duration(minReadySeconds) * time.Second).Sub(now), true
}

// Available reports whether the machine has been Ready for minReadySeconds.
func Available(m *v1beta1.Machine, minReadySeconds int32, now time.Time) bool {
	in, ok := AvailableIn(m, minReadySeconds, now)
	return ok && in <= 0
}
