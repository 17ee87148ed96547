package machine

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"machinist.dev/machinist/api/v1beta1"
)

// Only the provider process writes the status of a Machine, but for conditions. Nothing enforces that: whoever may write
// a status may lose what is found nowhere else, such as where the instance is, which attempt made it and what it was
// made from. So the process keeps what it wrote last, and puts back what somebody else changed. A process that was
// restarted believes the first status that it reads.

// recorded is what the status says of the instance as this process wrote it last, or read it first. It is never
// changed.
type recorded struct {
	instance *v1beta1.InstanceStatus
	launch   *v1beta1.LaunchStatus
	applied  *v1beta1.AppliedStatus
	// launched is the condition Launched while it is True: it says how and when the instance came. drained and detached
	// are those that let an instance go.
	launched, drained, detached *metav1.Condition
}

// recordedIn returns what a status says of the instance.
func recordedIn(status *v1beta1.MachineStatus) recorded {
	of := func(kind string) *metav1.Condition { return meta.FindStatusCondition(status.Conditions, kind) }
	r := recorded{status.Instance, status.Launch, status.Applied, of(v1beta1.ConditionLaunched),
		of(v1beta1.ConditionDrained), of(v1beta1.ConditionVolumesDetached)}
	if !said(r.launched) {
		r.launched = nil
	}
	return r
}

func (r recorded) equal(other recorded) bool {
	return equality.Semantic.DeepEqual(r.instance, other.instance) &&
		equality.Semantic.DeepEqual(r.launch, other.launch) &&
		equality.Semantic.DeepEqual(r.applied, other.applied) &&
		equality.Semantic.DeepEqual(r.launched, other.launched) &&
		equality.Semantic.DeepEqual(r.drained, other.drained) &&
		equality.Semantic.DeepEqual(r.detached, other.detached)
}

// restoreRecorded puts back what somebody else changed of what this process has recorded of the instance. What was
// not recorded yet may come from others: a machine that is moved here brings its status with it.
func (p *pass) restoreRecorded(ctx context.Context) {
	known, status := p.states.get(p.machine).recorded, &p.machine.Status
	if known == nil {
		return
	}
	changed := false
	if known.instance != nil && !equality.Semantic.DeepEqual(known.instance, status.Instance) {
		status.Instance, changed = known.instance.DeepCopy(), true
	}
	if known.launch != nil && !equality.Semantic.DeepEqual(known.launch, status.Launch) {
		status.Launch, changed = known.launch.DeepCopy(), true
	}
	if known.applied != nil && !equality.Semantic.DeepEqual(known.applied, status.Applied) {
		status.Applied, changed = known.applied.DeepCopy(), true
	}
	now := recordedIn(status)
	if known.launched != nil && (now.launched == nil || known.launched.Reason != now.launched.Reason ||
		!known.launched.LastTransitionTime.Equal(&now.launched.LastTransitionTime)) {
		putBack(status, v1beta1.ConditionLaunched, known.launched)
		changed = true
	}
	// Of these only what lets the instance go: two leaders may word the rest in two ways.
	if said(now.drained) && !said(known.drained) {
		putBack(status, v1beta1.ConditionDrained, known.drained)
		changed = true
	}
	if said(now.detached) && !said(known.detached) {
		putBack(status, v1beta1.ConditionVolumesDetached, known.detached)
		changed = true
	}
	if changed {
		logf.FromContext(ctx).Info("Putting back the status of the instance, which somebody else has changed")
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
	now := recordedIn(&p.machine.Status)
	if known := p.states.get(p.machine).recorded; known != nil && known.equal(now) {
		return
	}
	var kept *recorded
	if now != (recorded{}) {
		kept = &recorded{now.instance.DeepCopy(), now.launch.DeepCopy(), now.applied.DeepCopy(), now.launched.DeepCopy(),
			now.drained.DeepCopy(), now.detached.DeepCopy()}
	}
	p.states.update(p.machine, func(m *machineState) { m.recorded = kept })
}

// forgetRecorded drops what may not be what is stored.
func (p *pass) forgetRecorded() {
	p.states.update(p.machine, func(m *machineState) { m.recorded = nil })
}
