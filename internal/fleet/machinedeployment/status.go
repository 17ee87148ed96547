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

// mostFailedMachines is how many failed machines a status describes.
const mostFailedMachines = 10

// mostVersions is how many versions of kubelets a status lists.
const mostVersions = 32

// statusOf computes the status after a pass. requeueAfter is the time until the progress deadline, 0 if there is none.
func statusOf(d *v1beta1.MachineDeployment, v *view, selector string,
	now time.Time) (status *v1beta1.MachineDeploymentStatus, requeueAfter time.Duration) {
	status = d.Status.DeepCopy()
	status.Conditions = conditionlimit.Fleet.Apply(status.Conditions)
	status.Selector = selector
	if v.applied {
		status.ObservedGeneration = d.Generation
	}
	countInto(status, v)
	if revision := v.revisionNow(); revision > 0 {
		status.CurrentRevision = revision
	}

	c := conditions{status: status, generation: d.Generation, now: now}
	c.set(v1beta1.ConditionAvailable, status.AvailableReplicas >= v.minimum(), v1beta1.ReasonMinimumReplicasAvailable,
		v1beta1.ReasonMinimumReplicasUnavailable,
		fmt.Sprintf("%d of %d machines are available, at least %d must be.", status.AvailableReplicas, v.state.Replicas,
			v.minimum()))
	r := v.rollout(d, status, now.Sub(v.progressedAt(d, now)))
	progress, restart := progressing(meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing), r)
	c.put(progress)
	c.rollingOut(v, r)
	c.setOnce(v1beta1.ConditionPaused, v.state.Paused, v1beta1.ReasonDeploymentPaused, v1beta1.ReasonDeploymentResumed,
		"spec.paused stops rollouts.", "Rollouts may go on.")
	c.frozen(v)
	c.ofSets(v, status)
	c.ready(v, r)
	if restart {
		r.still = 0
	}
	return status, deadlineIn(progress, r)
}

// minimum is how many machines must be available for the deployment to be.
func (v *view) minimum() int32 {
	if v.state.Strategy == v1beta1.StrategyRecreate {
		return v.state.Replicas
	}
	return max(0, v.state.Replicas-v.bounds.MaxUnavailable)
}

// revisionNow returns the number of the newest revision after this pass, 0 if there is none yet.
func (v *view) revisionNow() int64 {
	switch {
	case v.began != "", v.current >= 0 && v.adopts():
		return v.number
	case len(v.sets) > 0:
		return revisionOf(v.sets[len(v.sets)-1])
	}
	return 0
}

// countInto writes the numbers of machines.
func countInto(status *v1beta1.MachineDeploymentStatus, v *view) {
	status.Replicas, status.ReadyReplicas, status.AvailableReplicas = 0, 0, 0
	status.UpdatedReplicas, status.UpToDateReplicas, status.FullyLabeledReplicas = 0, 0, 0
	status.UpToDateReadyReplicas, status.FailedMachines = 0, nil
	versions := map[string]int32{}
	for i, set := range v.sets {
		counted := v.state.Sets[i]
		status.Replicas += counted.Live
		status.ReadyReplicas += counted.Ready
		status.AvailableReplicas += counted.Available
		if i == v.current {
			status.UpdatedReplicas = counted.Live
		}
		for _, m := range v.machines[set.UID] {
			if !m.DeletionTimestamp.IsZero() {
				continue
			}
			if machinestate.UpToDate(m) {
				status.UpToDateReplicas++
			}
			if i == v.current && v.upToDateReady(m) {
				status.UpToDateReadyReplicas++
			}
			if m.Status.Version != "" {
				versions[m.Status.Version]++
			}
			if carries(m.Labels, set.Spec.Template.ObjectMeta.Labels) {
				status.FullyLabeledReplicas++
			}
			if machinestate.Failed(m) || machinestate.Unlaunchable(m) != nil {
				status.FailedMachines = append(status.FailedMachines, failedMachine(m))
			}
		}
	}
	status.UnavailableReplicas = max(0, v.state.Replicas-status.AvailableReplicas)
	status.FailedMachines = described(status.FailedMachines, v.replaced)
	status.RecentFailures = v.recent
	status.Versions = versionCounts(versions)
}

// upToDateReady reports whether a machine of the newest revision is Ready and its instance is what its spec asks for.
// Only a rollout in place changes the specification of an instance, and then what the provider reported before is no
// proof.
func (v *view) upToDateReady(m *v1beta1.Machine) bool {
	return machinestate.Ready(m) && machinestate.UpToDate(m) && !(v.state.updatesInPlace() && handover.Updating(m))
}

// versionCounts returns the most frequent versions, sorted by their names.
func versionCounts(versions map[string]int32) []v1beta1.VersionCount {
	var counts []v1beta1.VersionCount
	for version, n := range versions {
		counts = append(counts, v1beta1.VersionCount{Version: version, Count: n})
	}
	byName := func(a, b v1beta1.VersionCount) int { return cmp.Compare(a.Version, b.Version) }
	slices.SortFunc(counts, func(a, b v1beta1.VersionCount) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), byName(a, b))
	})
	counts = counts[:min(len(counts), mostVersions)]
	slices.SortFunc(counts, byName)
	return counts
}

// described returns as many failed machines as a status lists. Those that were replaced take precedence: after a
// restart the controller knows them only from the status.
func described(failed, replaced []v1beta1.FailedMachine) []v1beta1.FailedMachine {
	byName := func(a, b v1beta1.FailedMachine) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(failed, byName)
	failed = failed[:min(len(failed), mostFailedMachines-len(replaced))]
	failed = append(failed, replaced...)
	slices.SortFunc(failed, byName)
	return failed
}

func carries(labels, wanted map[string]string) bool {
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

// rollout sums up what the condition Progressing depends on.
func (v *view) rollout(d *v1beta1.MachineDeployment, status *v1beta1.MachineDeploymentStatus,
	still time.Duration) rollout {
	outdated := v.outdated()
	before := d.Status
	r := rollout{
		paused:         v.state.Paused,
		frozen:         v.state.Frozen,
		failing:        v.state.Failing,
		onlyWanted:     v.current >= 0 && outdated == 0 && v.updating() == 0,
		rejected:       v.rejected,
		rejectedReason: v.rejectedReason,
		began:          v.began,
		advanced: status.UpdatedReplicas > before.UpdatedReplicas || status.ReadyReplicas > before.ReadyReplicas ||
			status.AvailableReplicas > before.AvailableReplicas ||
			v.state.updatesInPlace() && status.UpToDateReplicas > before.UpToDateReplicas ||
			status.Replicas-status.UpdatedReplicas < before.Replicas-before.UpdatedReplicas,
		waiting:  v.plan.Waiting,
		still:    still,
		deadline: d.ProgressDeadlineOrDefault(),
	}
	if v.applied {
		r.doing = v.doing()
	}
	switch {
	case v.state.VersionSkew != "":
		r.forPeople = v1beta1.ReasonVersionSkew
	case len(v.plan.Scales) > 0 || outdated == 0:
	case v.state.Strategy == v1beta1.StrategyOnDelete:
		r.forPeople = v1beta1.ReasonWaitingForDeletion
	case v.plan.ForPeople:
		r.forPeople = v1beta1.ReasonWaitingForSelection
	case v.state.DisruptionDenied != "":
		r.forPeople = v1beta1.ReasonWaitingForDisruptionBudget
	}
	if v.state.Current >= 0 {
		r.set = v.state.Sets[v.state.Current].Name
	}
	r.complete = r.onlyWanted && status.UpdatedReplicas == v.state.Replicas && status.Replicas == v.state.Replicas &&
		status.AvailableReplicas-v.updating() >= v.state.Replicas
	return r
}

// outdated is how many machines of other revisions than the wanted one exist or may still be created. With Recreate it
// includes those being deleted: the rollout waits until they are gone.
func (v *view) outdated() int32 {
	var n int32
	for i, set := range v.state.Sets {
		if i == v.state.Current {
			continue
		}
		n += ceiling(set)
		if v.state.Strategy == v1beta1.StrategyRecreate {
			n += set.Deleting
		}
	}
	return n
}

// updating is how many machines of a rollout in place are available, but not up to date.
func (v *view) updating() (n int32) {
	if v.state.Strategy != v1beta1.StrategyInPlace {
		return 0
	}
	for _, set := range v.state.Sets {
		n += set.Updating
	}
	return n
}

// doing says which sets the pass scales.
func (v *view) doing() string {
	parts := make([]string, len(v.plan.Scales))
	for i, scale := range v.plan.Scales {
		parts[i] = fmt.Sprintf("%s %s", v.state.Sets[scale.Set].Name, scale)
	}
	return strings.Join(parts, "; ")
}
