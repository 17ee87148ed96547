package machinedeployment

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/conditionlimit"
)

const maxFailedMachines = 10

const maxVersions = 32

// statusOf returns the status after a pass. requeueAfter is the time until the progress deadline, or 0.
func statusOf(d *v1beta1.MachineDeployment, v *view, selector string,
	now time.Time) (status *v1beta1.MachineDeploymentStatus, requeueAfter time.Duration) {
	status = d.Status.DeepCopy()
	status.Conditions = conditionlimit.Fleet.Apply(status.Conditions)
	status.Selector = selector
	if v.applied {
		status.ObservedGeneration = d.Generation
	}
	setCounts(status, v, max(0, d.ReplicasOrDefault()))
	if revision := v.revisionNow(); revision > 0 {
		status.CurrentRevision = revision
	}

	status.VersionStep = v.step.status
	c := conditions{status: status, generation: d.Generation, now: now, step: v.step.prefix()}
	c.set(v1beta1.ConditionAvailable, status.AvailableReplicas >= v.minAvailable(), v1beta1.ReasonMinimumReplicasAvailable,
		v1beta1.ReasonMinimumReplicasUnavailable,
		fmt.Sprintf("%d of %d machines are available, at least %d must be.", status.AvailableReplicas, v.state.Replicas,
			v.minAvailable()))
	r := v.rollout(d, status, now.Sub(v.progressedAt(d, now)))
	progress, restart := progressing(meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing), r)
	c.put(progress)
	c.writeRollingOut(v, r)
	c.setOnce(v1beta1.ConditionPaused, v.state.Paused, v1beta1.ReasonDeploymentPaused, v1beta1.ReasonDeploymentResumed,
		"spec.paused stops rollouts.", "Rollouts continue.")
	c.writeFrozen(v)
	c.writeSetConditions(v, status)
	c.setPlacement(d, v)
	r.unplaced = max(0, d.ReplicasOrDefault()) > v.state.Replicas
	c.writeReady(v, r)
	if restart {
		r.stalledFor = 0
	}
	return status, deadlineIn(progress, r)
}

// minAvailable returns how many available machines the condition Available requires.
func (v *view) minAvailable() int32 {
	if v.state.Strategy == v1beta1.StrategyRecreate {
		return v.state.Replicas
	}
	return max(0, v.state.Replicas-v.bounds.MaxUnavailable)
}

// revisionNow returns the newest revision after this pass, or 0.
func (v *view) revisionNow() int64 {
	switch {
	case v.revisionReason != "", v.currentIndex >= 0 && v.mayStartRevision():
		return v.number
	case len(v.sets) > 0:
		return revisionOf(v.sets[len(v.sets)-1])
	}
	return 0
}

// setCounts counts the machines. replicas is the number that the deployment wants, even if some of them have no place.
func setCounts(status *v1beta1.MachineDeploymentStatus, v *view, replicas int32) {
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0
	status.UpdatedReplicas, status.UpToDateReplicas, status.FullyLabeledReplicas = 0, 0, 0
	status.UpToDateReadyReplicas, status.FailedMachines = 0, nil
	versions := map[string]int32{}
	for i, set := range v.sets {
		counted := v.state.Sets[i]
		status.Replicas += counted.Live
		status.ReadyReplicas += counted.Ready
		status.AvailableReplicas += counted.Available
		if i == v.currentIndex {
			status.UpdatedReplicas = counted.Live
		}
		for _, m := range v.machines[set.UID] {
			if !m.DeletionTimestamp.IsZero() {
				continue
			}
			if machinestate.IsUpToDate(m) {
				status.UpToDateReplicas++
			}
			if i == v.currentIndex && v.upToDateReady(m) {
				status.UpToDateReadyReplicas++
			}
			if m.Status.Version != "" {
				versions[m.Status.Version]++
			}
			if hasLabels(m.Labels, set.Spec.Template.ObjectMeta.Labels) {
				status.FullyLabeledReplicas++
			}
			if machinestate.HasFailed(m) || machinestate.UnlaunchableCondition(m) != nil {
				status.FailedMachines = append(status.FailedMachines, failedMachine(m))
			}
		}
	}
	status.UnavailableReplicas = max(0, replicas-status.AvailableReplicas)
	status.FailedMachines = limitFailedMachines(status.FailedMachines, v.failedAndGone)
	status.RecentFailures = v.recent
	status.Versions = versionCounts(versions)
}

// upToDateReady reports whether a machine of the newest revision is Ready and up to date. A report of the provider from
// before the last hand-over is outdated.
func (v *view) upToDateReady(m *v1beta1.Machine) bool {
	return machinestate.IsReady(m) && machinestate.IsUpToDate(m) && !(v.state.updatesInPlace() && handover.Updating(m))
}

func versionCounts(versions map[string]int32) []v1beta1.VersionCount {
	var counts []v1beta1.VersionCount
	for version, n := range versions {
		counts = append(counts, v1beta1.VersionCount{Version: version, Count: n})
	}
	byName := func(a, b v1beta1.VersionCount) int { return cmp.Compare(a.Version, b.Version) }
	slices.SortFunc(counts, func(a, b v1beta1.VersionCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), byName(a, b))
	})
	counts = counts[:min(len(counts), maxVersions)]
	slices.SortFunc(counts, byName)
	return counts
}

// limitFailedMachines returns at most maxFailedMachines machines. Machines that no longer exist take precedence,
// because only the status records them.
func limitFailedMachines(failed, gone []v1beta1.FailedMachine) []v1beta1.FailedMachine {
	byName := func(a, b v1beta1.FailedMachine) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(failed, byName)
	failed = failed[:min(len(failed), maxFailedMachines-len(gone))]
	failed = append(failed, gone...)
	slices.SortFunc(failed, byName)
	return failed
}

func hasLabels(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if have, ok := labels[key]; !ok || have != value {
			return false
		}
	}
	return true
}

func failedMachine(m *v1beta1.Machine) v1beta1.FailedMachine {
	at := metav1.NewTime(lastChangedAt(m))
	failed := v1beta1.FailedMachine{Name: m.Name, Reason: string(m.Status.FailureReason),
		Message: m.Status.FailureMessage, Time: &at}
	if launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched); failed.Reason == "" &&
		launched != nil {
		failed.Reason, failed.Message = launched.Reason, launched.Message
	}
	return failed
}

// rollout returns the input of the condition Progressing.
func (v *view) rollout(d *v1beta1.MachineDeployment, status *v1beta1.MachineDeploymentStatus,
	stalledFor time.Duration) rollout {
	outdated := v.outdatedMachines()
	before := d.Status
	r := rollout{
		paused:         v.state.Paused,
		frozen:         v.state.Frozen,
		failing:        v.state.Failing,
		onlyCurrent:    v.currentIndex >= 0 && outdated == 0 && v.updating() == 0 && v.step.isLast,
		rejection:      v.rejection,
		rejectedReason: v.rejectedReason,
		revisionReason: v.revisionReason,
		advanced: status.UpdatedReplicas > before.UpdatedReplicas || status.ReadyReplicas > before.ReadyReplicas ||
			status.AvailableReplicas > before.AvailableReplicas ||
			v.state.updatesInPlace() && status.UpToDateReplicas > before.UpToDateReplicas ||
			status.Replicas-status.UpdatedReplicas < before.Replicas-before.UpdatedReplicas,
		waitMessage: v.plan.WaitMessage,
		stalledFor:  stalledFor,
		deadline:    d.ProgressDeadlineOrDefault(),
	}
	if v.applied {
		r.actions = v.doing()
	}
	switch {
	case v.state.VersionWait != "":
		r.waitReason = v.versionReason
	case v.plan.StopReason != "" && (v.plan.StoppedAtRest || hadReason(before.Conditions, v.plan.StopReason)):
		// A stopped rollout has no deadline, even while a machine is added or replaced.
		r.waitReason = v.plan.StopReason
	case len(v.plan.Scales) > 0 || outdated == 0:
	case v.state.Strategy == v1beta1.StrategyOnDelete:
		r.waitReason = v1beta1.ReasonWaitingForDeletion
	case v.plan.AwaitsSelection:
		r.waitReason = v1beta1.ReasonWaitingForSelection
	case v.state.DisruptionDenied != "":
		r.waitReason = v1beta1.ReasonWaitingForDisruptionBudget
	}
	if v.state.CurrentIndex >= 0 {
		r.setName = v.state.Sets[v.state.CurrentIndex].Name
	}
	r.complete = r.onlyCurrent && status.UpdatedReplicas == v.state.Replicas && status.Replicas == v.state.Replicas &&
		status.AvailableReplicas-v.updating() >= v.state.Replicas
	r.partitionReached = r.waitReason == v1beta1.ReasonPartitionReached && v.plan.StoppedAtRest && v.step.isLast &&
		status.Replicas == v.state.Replicas && status.AvailableReplicas >= v.state.Replicas
	return r
}

func hadReason(conditions []metav1.Condition, reason string) bool {
	progressing := meta.FindStatusCondition(conditions, v1beta1.ConditionProgressing)
	return progressing != nil && progressing.Reason == reason
}

// outdatedMachines returns how many old machines exist or may still be created. With the strategy Recreate, old
// machines that are being deleted count too, because the rollout waits until they are gone.
func (v *view) outdatedMachines() int32 {
	var n int32
	for i, set := range v.state.Sets {
		if i == v.state.CurrentIndex {
			continue
		}
		n += ceiling(set)
		if v.state.Strategy == v1beta1.StrategyRecreate {
			n += set.Deleting
		}
	}
	return n
}

func (v *view) updating() (n int32) {
	if v.state.Strategy != v1beta1.StrategyInPlace {
		return 0
	}
	for _, set := range v.state.Sets {
		n += set.Updating
	}
	return n
}

func (v *view) doing() string {
	parts := make([]string, len(v.plan.Scales))
	for i, scale := range v.plan.Scales {
		parts[i] = fmt.Sprintf("%s %s", v.state.Sets[scale.Set].Name, scale)
	}
	return strings.Join(parts, "; ")
}
