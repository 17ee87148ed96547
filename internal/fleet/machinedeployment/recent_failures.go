package machinedeployment

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// maxRecentFailures is the maximum number of recent failures in a status.
const maxRecentFailures = 5

// recentFailure returns why a machine is broken and when it broke. A machine is broken if it failed, cannot be
// launched or was found unhealthy. For any other machine, ok is false. The time does not change while the same
// failure continues or while the provider retries.
func recentFailure(m *v1beta1.Machine) (failure v1beta1.FailedMachine, ok bool) {
	failure.Name = m.Name
	of := func(c *metav1.Condition) {
		failure.Reason, failure.Message, failure.Time = c.Reason, c.Message, c.LastTransitionTime.DeepCopy()
	}
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	launched := machinestate.Unlaunchable(m)
	switch {
	case machinestate.Failed(m):
		at := metav1.NewTime(lastChangedAt(m))
		failure.Reason, failure.Message, failure.Time = string(m.Status.FailureReason), m.Status.FailureMessage, &at
	case launched != nil:
		of(launched)
	case requested != nil && requested.Status == metav1.ConditionTrue:
		of(requested)
	default:
		return failure, false
	}
	failure.Message = wording.Brief(failure.Message)
	return failure, true
}

// keepTime returns the failure. If an earlier report was about the same failure, the result has the time of this
// report. Otherwise the status would change with each attempt to launch a machine.
func keepTime(failure v1beta1.FailedMachine, before v1beta1.FailedMachine, known bool) v1beta1.FailedMachine {
	if known && before.Reason == failure.Reason {
		failure.Time = before.Time
	}
	return failure
}

// mergeFailures returns the last failures of two lists, the newest first. Reports in the parameter others are later
// than reports in the parameter recent.
func mergeFailures(recent, others []v1beta1.FailedMachine) []v1beta1.FailedMachine {
	byName := map[string]v1beta1.FailedMachine{}
	for _, failure := range recent {
		byName[failure.Name] = failure
	}
	for _, failure := range others {
		before, known := byName[failure.Name]
		byName[failure.Name] = keepTime(failure, before, known)
	}
	merged := slices.SortedFunc(maps.Values(byName), func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(timeOf(b).Compare(timeOf(a)), cmp.Compare(a.Name, b.Name))
	})
	return merged[:min(len(merged), maxRecentFailures)]
}

func timeOf(f v1beta1.FailedMachine) time.Time {
	if f.Time == nil {
		return time.Time{}
	}
	return f.Time.Time
}

// machineFailed records a failure from an event. The machine may no longer exist in the next pass.
func (m *sharedState) machineFailed(key types.NamespacedName, failure v1beta1.FailedMachine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		before, known := r.broken[failure.Name]
		r.recent = mergeFailures(r.recent, []v1beta1.FailedMachine{keepTime(failure, before, known)})
	}
}

// recentFailures returns the last failures in the status, in events and of the existing machines. Failures are kept
// until a status contains them, which may be several passes later.
func (m *sharedState) recentFailures(r *deploymentState, status []v1beta1.FailedMachine,
	machines map[types.UID][]*v1beta1.Machine) []v1beta1.FailedMachine {
	m.mu.Lock()
	defer m.mu.Unlock()
	var present []v1beta1.FailedMachine
	broken := map[string]v1beta1.FailedMachine{}
	for _, ofSet := range machines {
		for _, machine := range ofSet {
			failure, ok := recentFailure(machine)
			if !ok {
				continue
			}
			before, known := r.broken[machine.Name]
			failure = keepTime(failure, before, known)
			present = append(present, failure)
			broken[machine.Name] = failure
		}
	}
	r.broken = broken
	r.recent = mergeFailures(mergeFailures(status, r.recent), present)
	return r.recent
}
