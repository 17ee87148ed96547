package machineset

import (
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machinestate"
	"machinist.dev/machinist/internal/preservation"
)

func countLive(machines []*v1beta1.Machine) (n int) {
	for _, m := range machines {
		if machinestate.Live(m) {
			n++
		}
	}
	return n
}

func conditionIsTrue(m *v1beta1.Machine, condition string) bool {
	return meta.IsStatusConditionTrue(m.Status.Conditions, condition)
}

func running(m *v1beta1.Machine) bool {
	return m.Status.Phase == v1beta1.MachineRunning || m.Status.Phase == v1beta1.MachineAvailable
}

// comingUp reports whether the machine has not been Running yet.
func comingUp(m *v1beta1.Machine) bool {
	switch m.Status.Phase {
	case "", v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned:
		return true
	}
	return false
}

// remediable reports whether the set may delete the machine in order to replace it.
func remediable(m *v1beta1.Machine) bool {
	return machinestate.Live(m) && machinestate.ToBeReplaced(m) && !machinestate.ReplacementExempt(m) && !machinestate.Unchangeable(m) &&
		!preservation.Due(m) && machinestate.Unlaunchable(m) == nil
}

// sameInstanceSpec reports whether both would make the same instance.
func sameInstanceSpec(a, b *v1beta1.MachineSpec) bool {
	return a.Provider == b.Provider && a.Version == b.Version &&
		equality.Semantic.DeepEqual(a.ClassRef, b.ClassRef) &&
		equality.Semantic.DeepEqual(a.ProviderSpec, b.ProviderSpec) &&
		equality.Semantic.DeepEqual(a.CredentialsRef, b.CredentialsRef) &&
		equality.Semantic.DeepEqual(a.UserDataRef, b.UserDataRef)
}

func has(m map[string]string, key string) bool {
	_, ok := m[key]
	return ok
}

// affectsSet reports whether a set must reconcile because of a change of its machine.
func affectsSet(was, is *v1beta1.Machine) bool {
	if machinestate.Live(was) != machinestate.Live(is) || was.UID != is.UID ||
		!maps.Equal(was.Labels, is.Labels) || !maps.Equal(was.Annotations, is.Annotations) ||
		!equality.Semantic.DeepEqual(was.OwnerReferences, is.OwnerReferences) {
		return true
	}
	if was.Generation != is.Generation && !sameInPlace(&was.Spec, &is.Spec) {
		return true
	}
	if !machinestate.Live(is) {
		return false // Only its removal matters now.
	}
	if preservation.Due(was) != preservation.Due(is) || machinestate.Failed(was) != machinestate.Failed(is) || running(was) != running(is) || comingUp(was) != comingUp(is) ||
		was.Status.FailureReason != is.Status.FailureReason || was.Status.FailureMessage != is.Status.FailureMessage {
		return true
	}
	for _, condition := range []string{v1beta1.ConditionReady, v1beta1.ConditionUpToDate, v1beta1.ConditionRemediationRequested, v1beta1.ConditionInterruptionNotice, v1beta1.ConditionLaunched} {
		before, after := meta.FindStatusCondition(was.Status.Conditions, condition), meta.FindStatusCondition(is.Status.Conditions, condition)
		if !sameCondition(before, after) {
			return true
		}
	}
	return false
}

// sameCondition compares what a set uses of a condition: the reason only of one that is not True.
func sameCondition(a, b *metav1.Condition) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Status == b.Status && a.LastTransitionTime.Equal(&b.LastTransitionTime) && (a.Status == metav1.ConditionTrue || a.Reason == b.Reason)
}

// sameInPlace compares what a set propagates to machines in place.
func sameInPlace(a, b *v1beta1.MachineSpec) bool {
	return equality.Semantic.DeepEqual(a.Node, b.Node) && equality.Semantic.DeepEqual(a.LifecycleHooks, b.LifecycleHooks) && sameTimeouts(a.Timeouts, b.Timeouts)
}
