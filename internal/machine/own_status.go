package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// Only the provider process writes the status of a Machine, except for conditions. Nothing enforces this. Any client
// that may write the status may erase facts that are recorded nowhere else, such as the scope of the instance, the
// attempt that created it and the configuration from which it was created. So the process remembers what it last wrote,
// and restores what another client changed. A restarted process trusts the first status that it reads, except for a
// scope in which it does not find the instance (absence_scope.go).
//
// A suspended former leader may resume for a moment and write what it has done. So a change is reverted only if no
// process would make it: a fact is lost, or a fact of the same instance changed although it never changes.

// recorded is the status of the instance as this process last wrote it, or first read it. It is immutable.
type recorded struct {
	// providerID is the provider ID of the instance.
	providerID string
	instance   *v1beta1.InstanceStatus
	launch     *v1beta1.LaunchStatus
	applied    *v1beta1.AppliedStatus
	// launched is the condition Launched if it is True: it records how and when the instance was launched. drained and
	// detached are the conditions that must be True before the instance is deleted.
	launched, drained, detached *metav1.Condition
}

// recordedIn returns the status of the instance.
func recordedIn(m *v1beta1.Machine) recorded {
	status := &m.Status
	of := func(kind string) *metav1.Condition { return meta.FindStatusCondition(status.Conditions, kind) }
	r := recorded{m.Spec.ProviderID, status.Instance, status.Launch, status.Applied, of(v1beta1.ConditionLaunched),
		of(v1beta1.ConditionDrained), of(v1beta1.ConditionVolumesDetached)}
	if !isTrue(r.launched) {
		r.launched = nil
	}
	return r
}

func (r recorded) equal(other recorded) bool {
	return r.providerID == other.providerID && equality.Semantic.DeepEqual(r.instance, other.instance) &&
		equality.Semantic.DeepEqual(r.launch, other.launch) &&
		equality.Semantic.DeepEqual(r.applied, other.applied) &&
		equality.Semantic.DeepEqual(r.launched, other.launched) &&
		equality.Semantic.DeepEqual(r.drained, other.drained) &&
		equality.Semantic.DeepEqual(r.detached, other.detached)
}

// restoreRecorded restores the facts about the instance that another client changed after this process recorded them.
// Facts that were not recorded yet may come from others: a machine that is moved here comes with its status.
func (p *pass) restoreRecorded(ctx context.Context) {
	status := &p.machine.Status
	before := status.DeepCopy()
	if l, id := status.Launch, p.machine.Spec.ProviderID; id != "" && (p.machine.Replacing() || p.machine.Retrying()) &&
		l.OldProviderID != id {
		l.Step = v1beta1.LaunchStepNone // A process that gives up an instance records its provider ID.
	}
	if known := p.states.get(p.machine).recorded; known != nil {
		known.restore(p.machine)
	}
	if in := status.Instance; in != nil && in.Provider == "" {
		status.Instance = nil // Every process that records an instance names the provider. Read the instance again.
	}
	if !equality.Semantic.DeepEqual(before, status) {
		logf.FromContext(ctx).Info("Restoring the status of the instance, which another client changed")
	}
}

// restore restores what is lost or wrong in the status of the Machine.
func (r *recorded) restore(m *v1beta1.Machine) {
	status := &m.Status
	if was, is := r.launch, status.Launch; was != nil && is != nil && is.Attempt < was.Attempt {
		status.Launch = was.DeepCopy() // No process returns to an earlier attempt or to its results.
	}
	if is := status.Launch; is != nil && is.Refused && (r.launch == nil || !r.launch.Refused) {
		is.Refused = false // Only a process whose Create was refused sets it.
	}
	if r.providerID == m.Spec.ProviderID && !m.Replacing() && !m.Retrying() {
		r.restoreInstance(status)
	}
	// Conditions that permit the deletion of the instance must be determined by this process.
	if now := recordedIn(m); isTrue(now.drained) && !isTrue(r.drained) {
		restoreCondition(status, v1beta1.ConditionDrained, r.drained)
	}
	if now := recordedIn(m); isTrue(now.detached) && !isTrue(r.detached) {
		restoreCondition(status, v1beta1.ConditionVolumesDetached, r.detached)
	}
}

// restoreInstance restores what is lost or wrong in the record of the same instance.
func (r *recorded) restoreInstance(status *v1beta1.MachineStatus) {
	switch was, is := r.instance, status.Instance; {
	case was == nil:
	case is == nil || is.Provider == "":
		status.Instance = was.DeepCopy()
	default:
		is.Provider, is.Scope, is.LaunchTime = was.Provider, was.Scope, was.LaunchTime.DeepCopy()
		is.NodeProviderID, is.Account = was.NodeProviderID, was.Account
		if was.NodeName != "" {
			is.NodeName = was.NodeName
		}
	}
	if was := r.launch; was != nil && was.Step == v1beta1.LaunchStepNone && status.Launch == nil {
		status.Launch = was.DeepCopy()
	}
	if r.applied != nil && status.Applied == nil {
		status.Applied = r.applied.DeepCopy()
	}
	is := meta.FindStatusCondition(status.Conditions, v1beta1.ConditionLaunched)
	if was := r.launched; was != nil && (is == nil || isTrue(is) && (is.Reason != was.Reason ||
		!is.LastTransitionTime.Equal(&was.LastTransitionTime))) {
		restoreCondition(status, v1beta1.ConditionLaunched, was)
	}
}

// isTrue reports whether a condition is True.
func isTrue(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }

// restoreCondition sets a condition to its recorded value, and removes it if that is nil.
func restoreCondition(status *v1beta1.MachineStatus, kind string, was *metav1.Condition) {
	switch is := meta.FindStatusCondition(status.Conditions, kind); {
	case was == nil:
		dropCondition(&status.Conditions, kind)
	case is == nil:
		status.Conditions = append(status.Conditions, *was)
	default:
		*is = *was
	}
}

// keepRecorded remembers the status of the instance, once it is stored.
func (p *pass) keepRecorded() {
	now := recordedIn(p.machine)
	if known := p.states.get(p.machine).recorded; known != nil && known.equal(now) {
		return
	}
	var stored *recorded
	if now != (recorded{providerID: now.providerID}) {
		stored = &recorded{now.providerID, now.instance.DeepCopy(), now.launch.DeepCopy(), now.applied.DeepCopy(),
			now.launched.DeepCopy(),
			now.drained.DeepCopy(), now.detached.DeepCopy()}
	}
	p.states.update(p.machine, func(m *machineState) { m.recorded = stored })
}

// forgetRecorded drops the memory, because it may differ from what is stored.
func (p *pass) forgetRecorded() {
	p.states.update(p.machine, func(m *machineState) { m.recorded = nil })
}
