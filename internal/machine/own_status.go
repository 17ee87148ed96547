package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// Only the provider process writes the status of a Machine, but for conditions. Nothing enforces that: whoever may
// write a status may lose what is found nowhere else, such as where the instance is, which attempt made it and what it
// was made from. So the process keeps what it wrote last, and puts back what somebody else changed. A process that was
// restarted believes the first status that it reads, apart from a scope in which it does not find the instance
// (absence_scope.go).
//
// A former leader that was suspended may go on for a moment and write what it has done. So only that is put back which
// no process writes: what is lost, or changed of the same instance although it never changes.

// recorded is what the status says of the instance as this process wrote it last, or read it first. It is never
// changed.
type recorded struct {
	// providerID is that of the instance.
	providerID string
	instance   *v1beta1.InstanceStatus
	launch     *v1beta1.LaunchStatus
	applied    *v1beta1.AppliedStatus
	// launched is the condition Launched while it is True: it says how and when the instance came. drained and detached
	// are those that let an instance go.
	launched, drained, detached *metav1.Condition
}

// recordedIn returns what a status says of the instance.
func recordedIn(m *v1beta1.Machine) recorded {
	status := &m.Status
	of := func(kind string) *metav1.Condition { return meta.FindStatusCondition(status.Conditions, kind) }
	r := recorded{m.Spec.ProviderID, status.Instance, status.Launch, status.Applied, of(v1beta1.ConditionLaunched),
		of(v1beta1.ConditionDrained), of(v1beta1.ConditionVolumesDetached)}
	if !said(r.launched) {
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

// restoreRecorded puts back what somebody else changed of what this process has recorded of the instance. What was
// not recorded yet may come from others: a machine that is moved here brings its status with it.
func (p *pass) restoreRecorded(ctx context.Context) {
	status := &p.machine.Status
	before := status.DeepCopy()
	if l, id := status.Launch, p.machine.Spec.ProviderID; id != "" && (p.machine.Replacing() || p.machine.Retrying()) &&
		l.OldProviderID != id {
		l.Step = v1beta1.LaunchStepNone // A process that gives an instance up writes down which.
	}
	if known := p.states.get(p.machine).recorded; known != nil {
		known.restore(p.machine)
	}
	if in := status.Instance; in != nil && in.Provider == "" {
		status.Instance = nil // Whoever describes an instance names the provider: it has to be asked again.
	}
	if !equality.Semantic.DeepEqual(before, status) {
		logf.FromContext(ctx).Info("Putting back the status of the instance, which somebody else has changed")
	}
}

// restore puts back what is lost or wrong in the status of the Machine.
func (r *recorded) restore(m *v1beta1.Machine) {
	status := &m.Status
	if was, is := r.launch, status.Launch; was != nil && is != nil && is.Attempt < was.Attempt {
		status.Launch = was.DeepCopy() // No process goes back to an attempt, nor to what that came to.
	}
	if is := status.Launch; is != nil && is.Refused && (r.launch == nil || !r.launch.Refused) {
		is.Refused = false // Only a process that was refused writes it.
	}
	if r.providerID == m.Spec.ProviderID && !m.Replacing() && !m.Retrying() {
		r.restoreInstance(status)
	}
	// What lets the instance go has to be found out anew.
	if now := recordedIn(m); said(now.drained) && !said(r.drained) {
		putBack(status, v1beta1.ConditionDrained, r.drained)
	}
	if now := recordedIn(m); said(now.detached) && !said(r.detached) {
		putBack(status, v1beta1.ConditionVolumesDetached, r.detached)
	}
}

// restoreInstance puts back what is lost or wrong of the same instance.
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
	if was := r.launched; was != nil && (is == nil || said(is) && (is.Reason != was.Reason ||
		!is.LastTransitionTime.Equal(&was.LastTransitionTime))) {
		putBack(status, v1beta1.ConditionLaunched, was)
	}
}

// said reports whether a condition is True.
func said(c *metav1.Condition) bool { return c != nil && c.Status == metav1.ConditionTrue }

// putBack makes a condition what it was; nil is none.
func putBack(status *v1beta1.MachineStatus, kind string, was *metav1.Condition) {
	switch is := meta.FindStatusCondition(status.Conditions, kind); {
	case was == nil:
		dropCondition(&status.Conditions, kind)
	case is == nil:
		status.Conditions = append(status.Conditions, *was)
	default:
		*is = *was
	}
}

// keepRecorded takes note of what the status says of the instance, once it is stored.
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

// forgetRecorded drops what may not be what is stored.
func (p *pass) forgetRecorded() {
	p.states.update(p.machine, func(m *machineState) { m.recorded = nil })
}
