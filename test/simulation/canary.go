package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/test/invariants"
)

// canaryPause is the duration of pauseAfter.
const canaryPause = 5 * time.Minute

func canaryScenarios() []Scenario {
	partition := func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.RollingUpdate.Partition = 2 }
	pauseAfter := func(duration time.Duration) func(*v1beta1.MachineDeployment) {
		return func(d *v1beta1.MachineDeployment) {
			d.Spec.Strategy.RollingUpdate.PauseAfter = &v1beta1.RolloutPause{Machines: 1}
			if duration > 0 {
				d.Spec.Strategy.RollingUpdate.PauseAfter.Duration = &metav1.Duration{Duration: duration}
			}
		}
	}
	return []Scenario{
		{Name: "partition", Group: Fleets, Variants: 3, Base: fleet(3, "a", strategy(1, 0), partition), Script: partitioned,
			MayDiffer: passedRevisions},
		{Name: "partition-rolled-back", Group: Fleets, Base: fleet(3, "a", strategy(1, 0), partition), Script: rolledBack,
			MayDiffer: passedRevisions},
		{Name: "pause-after", Group: Fleets, Variants: 3, Base: fleet(3, "a", strategy(1, 1), pauseAfter(0)), Script: promoted,
			MayDiffer: passedRevisions},
		{Name: "pause-after-duration", Group: Fleets, Variants: 2, Base: fleet(3, "a", strategy(1, 0), pauseAfter(canaryPause)),
			Script: passingTime, MayDiffer: passedRevisions},
	}
}

// partitioned rolls out up to a partition, and lowers the partition after other changes of the fleet.
func partitioned(r *rand.Rand) []Action {
	actions := []Action{keepsOldMachines(), roll("b"), disturbance(r).waitFor("the partition is reached",
		stoppedBy(v1beta1.ReasonPartitionReached))}
	if r.IntN(2) == 0 {
		actions = append(actions, roll("c").waitFor("the partition is reached", stoppedBy(v1beta1.ReasonPartitionReached)))
	}
	return append(actions, scale(4).waitFor("the partition is reached", stoppedBy(v1beta1.ReasonPartitionReached)),
		edit("partition 0", func(d *v1beta1.MachineDeployment) { d.Spec.Strategy.RollingUpdate.Partition = 0 }).
			waitFor("the fleet has 4 machines and the partition is reached", func(w *World) bool {
				return w.liveMachines() == 4 && stoppedBy(v1beta1.ReasonPartitionReached)(w)
			}))
}

// rolledBack undoes a rollout that a partition has stopped. Although the partition remains, no machine of the unwanted
// revision may be left.
func rolledBack(*rand.Rand) []Action {
	return []Action{roll("b"), roll("a").waitFor("the partition is reached", stoppedBy(v1beta1.ReasonPartitionReached))}
}

// promoted rolls out until the first machine exists, and continues with a promotion. The promotion of another revision
// has no effect.
func promoted(r *rand.Rand) []Action {
	waiting := stoppedBy(v1beta1.ReasonWaitingForPromotion)
	actions := []Action{keepsOldMachines(), roll("b"), promote("1").waitFor("the rollout waits", waiting),
		disturbance(r).waitFor("the rollout waits", waiting)}
	if r.IntN(2) == 0 {
		actions = append(actions, roll("c").waitFor("the rollout waits", waiting))
	}
	return append(actions, promote("").waitFor("the rollout waits", waiting))
}

// passingTime rolls out until the first machine exists, and then waits for the end of pauseAfter.
func passingTime(r *rand.Rand) []Action {
	actions := []Action{keepsOldMachines(), roll("b")}
	if r.IntN(2) == 0 {
		actions = append(actions, disturbance(r).waitFor("the rollout waits", stoppedBy(v1beta1.ReasonWaitingForPromotion)))
	}
	return actions
}

func disturbance(r *rand.Rand) Action {
	if r.IntN(2) == 0 {
		return breakInstance(r.IntN(4))
	}
	return deleteMachine(r.IntN(4))
}

// promote promotes the given revision, or the current one if it is empty.
func promote(revision string) Action {
	return edit("promote revision "+revision, func(d *v1beta1.MachineDeployment) {
		metav1.SetMetaDataAnnotation(&d.ObjectMeta, v1beta1.AnnotationPromoteRevision,
			cmp.Or(revision, strconv.FormatInt(d.Status.CurrentRevision, 10)))
	})
}

// stoppedBy reports whether the rollout of the present template waits for the given reason.
func stoppedBy(reason string) func(*World) bool {
	return func(w *World) bool {
		d := w.canary()
		if d == nil {
			return true // The plan's faults may include the deletion of the deployment.
		}
		c := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
		return c != nil && c.Reason == reason && c.ObservedGeneration == d.Generation
	}
}

func (w *World) canary() *v1beta1.MachineDeployment {
	for _, o := range w.control.Snapshot(v1beta1.GroupVersion.WithKind("MachineDeployment")) {
		if o.GetName() == deployment {
			return o.(*v1beta1.MachineDeployment)
		}
	}
	return nil
}

// keepsOldMachines checks after each write that no more machines have the new class than partition and pauseAfter
// permit, and that the manager has deleted no more working machines than the new machines replace.
func keepsOldMachines() Action {
	return addStatement("the rollout keeps old machines", func(w *World) string {
		d := w.canary()
		if d == nil {
			return ""
		}
		replicas := invariants.Replicas(d.Spec.Replicas)
		most := w.mostUpdated(d, replicas)
		if most >= replicas {
			return ""
		}
		updated, old := 0, 0
		for _, m := range w.machines() {
			switch {
			case !m.DeletionTimestamp.IsZero():
			case classNameOf(m) == d.Spec.Template.Spec.ClassRef.Name:
				updated++
			default:
				old++
			}
		}
		if old == 0 || d.Spec.Template.Spec.ClassRef.Name == "a" {
			return ""
		}
		if updated > most+w.deposedCount {
			return fmt.Sprintf("%d machines have the new class, at most %d may", updated, most)
		}
		if n := w.workingDeletedByManager("a"); n > most+w.deposedCount {
			return fmt.Sprintf("the manager has deleted %d working machines of the first class, at most %d may be replaced", n, most)
		}
		return ""
	})
}

// mostUpdated returns how many machines of the newest revision may exist.
func (w *World) mostUpdated(d *v1beta1.MachineDeployment, replicas int) int {
	u := d.Spec.Strategy.RollingUpdate
	most := replicas - int(u.Partition)
	if u.PauseAfter == nil ||
		d.Annotations[v1beta1.AnnotationPromoteRevision] == strconv.FormatInt(d.Status.CurrentRevision, 10) {
		return most
	}
	if u.PauseAfter.Duration == nil || !w.anyReadyFor(d.Spec.Template.Spec.ClassRef.Name, u.PauseAfter.Duration.Duration) {
		most = min(most, int(u.PauseAfter.Machines))
	}
	return most
}

// anyReadyFor reports whether a machine of the class was Ready for the duration at any time until now.
func (w *World) anyReadyFor(class string, duration time.Duration) bool {
	for _, versions := range w.oracle.history {
		for _, v := range versions {
			if v.machine == nil || classNameOf(v.machine) != class {
				continue
			}
			ready := findCondition(v.machine, v1beta1.ConditionReady)
			// The clocks of processes may differ.
			if ready != nil && ready.Status == metav1.ConditionTrue &&
				!w.clock.at.Before(ready.LastTransitionTime.Add(duration-time.Minute)) {
				return true
			}
		}
	}
	return false
}

func (w *World) workingDeletedByManager(class string) (n int) {
	for _, versions := range w.oracle.history {
		for i := range versions {
			if endsAt(versions, i) && versions[i].actor == Manager && classNameOf(versions[i-1].machine) == class &&
				isPlain(versions[i-1].machine) {
				n++
			}
		}
	}
	return n
}
