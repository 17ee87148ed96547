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
	// launched is the condition Launched while it is True: it says how and when the instance came.
	launched *metav1.Condition
}

// recordedIn returns what a status says of the instance.
func recordedIn(status *v1beta1.MachineStatus) recorded {
	r := recorded{status.Instance, status.Launch, status.Applied,
		meta.FindStatusCondition(status.Conditions, v1beta1.ConditionLaunched)}
	if r.launched != nil && r.launched.Status != metav1.ConditionTrue {
		r.launched = nil
	}
	return r
}

func (r recorded) equal(other recorded) bool {
	return equality.Semantic.DeepEqual(r.instance, other.instance) &&
		equality.Semantic.DeepEqual(r.launch, other.launch) &&
		equality.Semantic.DeepEqual(r.applied, other.applied) &&
		equality.Semantic.DeepEqual(r.launched, other.launched)
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
	if c := known.launched; c != nil && !equality.Semantic.DeepEqual(c, recordedIn(status).launched) {
		if now := meta.FindStatusCondition(status.Conditions, c.Type); now != nil {
			*now = *c
		} else {
			status.Conditions = append(status.Conditions, *c)
		}
		changed = true
	}
	if changed {
		logf.FromContext(ctx).Info("Putting back the status of the instance, which somebody else has changed")
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
		kept = &recorded{now.instance.DeepCopy(), now.launch.DeepCopy(), now.applied.DeepCopy(), now.launched.DeepCopy()}
	}
	p.states.update(p.machine, func(m *machineState) { m.recorded = kept })
}

// forgetRecorded drops what may not be what is stored.
func (p *pass) forgetRecorded() {
	p.states.update(p.machine, func(m *machineState) { m.recorded = nil })
}
