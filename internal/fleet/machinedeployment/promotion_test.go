package machinedeployment

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// The deployment is observed one hour after noon.
//
// Rule: pause-after-first-machines.
func TestReadLimits(t *testing.T) {
	const hour = 60 // minutes
	pause := func(machines int32, minutes int) *v1beta1.RolloutPause {
		p := &v1beta1.RolloutPause{Machines: machines}
		if minutes > 0 {
			p.Duration = &metav1.Duration{Duration: time.Duration(minutes) * time.Minute}
		}
		return p
	}
	ready := func(minutes ...int) (machines []*v1beta1.Machine) {
		for i, minute := range minutes {
			machines = append(machines, machine(string(rune('b'+i)), minute, isReady))
		}
		return machines
	}
	for name, test := range map[string]struct {
		pause    *v1beta1.RolloutPause
		strategy v1beta1.DeploymentStrategyType
		machines []*v1beta1.Machine
		change   func(d *v1beta1.MachineDeployment, old, current *v1beta1.MachineSet)
		limit    int32
		ends     int // minutes after noon, or 0
		requeue  time.Duration
		promoted bool
	}{
		"without a pause":         {machines: ready(10)},
		"with another strategy":   {pause: pause(1, 0), strategy: v1beta1.StrategyOnDelete, machines: ready(10)},
		"without a duration":      {pause: pause(1, 0), machines: ready(10), limit: 1},
		"before the end":          {pause: pause(1, 55), machines: ready(10), limit: 1, ends: 65, requeue: 5 * time.Minute},
		"after the end":           {pause: pause(1, 50), machines: ready(10), promoted: true},
		"one machine is missing":  {pause: pause(2, 10), machines: ready(10), limit: 2},
		"the last machine counts": {pause: pause(2, 30), machines: ready(10, 40), limit: 2, ends: 70, requeue: 10 * time.Minute},
		"a machine is not Ready": {pause: pause(1, 10), machines: append(ready(10), machine("x", 11, notReady)),
			limit: 1},
		"minReadySeconds": {pause: pause(1, 49), machines: ready(10), limit: 1, ends: 61, requeue: time.Minute,
			change: func(d *v1beta1.MachineDeployment, _, _ *v1beta1.MachineSet) { d.Spec.MinReadySeconds = 120 }},
		"the provider's clock is ahead": {pause: pause(1, 10), machines: ready(2 * hour), limit: 1, ends: 130,
			requeue: 10 * time.Minute},
		"promoted": {pause: pause(1, 0), machines: ready(10), promoted: true,
			change: func(d *v1beta1.MachineDeployment, _, _ *v1beta1.MachineSet) {
				d.Annotations = map[string]string{v1beta1.AnnotationPromoteRevision: "2"}
			}},
		"another revision is promoted": {pause: pause(1, 0), machines: ready(10), limit: 1,
			change: func(d *v1beta1.MachineDeployment, _, _ *v1beta1.MachineSet) {
				d.Annotations = map[string]string{v1beta1.AnnotationPromoteRevision: "1"}
			}},
		"the set was promoted": {pause: pause(1, 0), machines: ready(10), promoted: true,
			change: func(_ *v1beta1.MachineDeployment, _, current *v1beta1.MachineSet) {
				annotate(current, v1beta1.AnnotationPromoted, "")
			}},
		"nothing to replace": {pause: pause(1, 10), machines: ready(10), limit: 1,
			change: func(_ *v1beta1.MachineDeployment, old, _ *v1beta1.MachineSet) { *old.Spec.Replicas = 0 }},
	} {
		t.Run(name, func(t *testing.T) {
			d, old, current := deployment("b"), setOf("a", 1, noon), setOf("b", 2, noon)
			d.Spec.Strategy = v1beta1.DeploymentStrategy{Type: test.strategy,
				RollingUpdate: &v1beta1.RollingUpdate{PauseAfter: test.pause}}
			*old.Spec.Replicas, *current.Spec.Replicas = 2, int32(len(test.machines))
			if test.change != nil {
				test.change(d, old, current)
			}
			v := viewed(t, d, []*v1beta1.MachineSet{old, current}, map[types.UID][]*v1beta1.Machine{current.UID: test.machines})
			var ends time.Time
			if test.ends > 0 {
				ends = noon.Add(time.Duration(test.ends) * time.Minute)
			}
			if v.state.PauseAfter != test.limit || !v.state.PauseEnds.Equal(ends) {
				t.Errorf("at most %d machines until %s, want %d until %s", v.state.PauseAfter, v.state.PauseEnds, test.limit, ends)
			}
			if v.endsPause != test.promoted {
				t.Errorf("the promotion is recorded: %t, want %t", v.endsPause, test.promoted)
			}
			if requeue := v.readLimits(d, noon.Add(time.Hour)); requeue != test.requeue {
				t.Errorf("the next pass is in %s, want %s", requeue, test.requeue)
			}
		})
	}
}

// Rule: partition-not-for-rollback.
func TestPromotionIsRecorded(t *testing.T) {
	for name, test := range map[string]struct {
		change func(old, current *v1beta1.MachineSet)
		want   string
		exists bool
	}{
		"a new revision": {change: func(_, _ *v1beta1.MachineSet) {}},
		"an unfinished rollout is undone": {func(old, current *v1beta1.MachineSet) {
			setRevision(old, 3)
			*current.Spec.Replicas = 1
		}, "rolled-back", true},
		"a finished rollout is undone": {change: func(old, current *v1beta1.MachineSet) {
			setRevision(old, 3)
			annotate(current, v1beta1.AnnotationPromoted, "")
		}},
		"the revision stays": {func(_, current *v1beta1.MachineSet) {
			annotate(current, v1beta1.AnnotationPromoted, "")
		}, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			d, old, current := deployment("b"), setOf("a", 1, noon), setOf("b", 2, noon)
			d.Spec.Strategy.RollingUpdate = &v1beta1.RollingUpdate{Partition: 2}
			*old.Spec.Replicas = 3
			test.change(old, current)
			v := viewed(t, d, []*v1beta1.MachineSet{old, current}, nil)
			after := v.wantedSet(d, v.currentIndex, 0)
			if got, exists := after.Annotations[v1beta1.AnnotationPromoted]; got != test.want || exists != test.exists {
				t.Errorf("the annotation is %q (%t), want %q (%t)", got, exists, test.want, test.exists)
			}
			if stays := v.state.Partition == 2; stays == (test.want == "rolled-back") {
				t.Errorf("the partition is %d", v.state.Partition)
			}
		})
	}
}
