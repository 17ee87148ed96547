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

const maxRecentFailures = 5

// recentFailure returns the reason and the time of the machine's failure. It also covers machines that became
// unlaunchable or were found unhealthy. For all other machines, ok is false. If the launch is retried and fails again,
// the time of the failure does not change.
func recentFailure(m *v1beta1.Machine) (failure v1beta1.FailedMachine, ok bool) {
	failure.Name = m.Name
	of := func(c *metav1.Condition) {
		failure.Reason, failure.Message, failure.Time = c.Reason, c.Message, c.LastTransitionTime.DeepCopy()
	}
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	launched := machinestate.UnlaunchableCondition(m)
	switch {
	case machinestate.HasFailed(m):
		at := metav1.NewTime(lastChangedAt(m))
		failure.Reason, failure.Message, failure.Time = string(m.Status.FailureReason), m.Status.FailureMessage, &at
	case launched != nil:
		of(launched)
	case requested != nil && requested.Status == metav1.ConditionTrue:
		of(requested)
	default:
		return failure, false
	}
	failure.Message = wording.Shorten(failure.Message)
	return failure, true
}

// keepTime returns a failure of a machine. If the machine failed for the same reason before, the result has the time of
// the earlier failure. Otherwise every launch attempt would change the status.
func keepTime(failure v1beta1.FailedMachine, before v1beta1.FailedMachine, known bool) v1beta1.FailedMachine {
	if known && before.Reason == failure.Reason {
		failure.Time = before.Time
	}
	return failure
}

// mergeFailures returns the last failures of both lists, newest first. If both lists contain the same machine, the
// entry in the second list is used, because the second list is newer.
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

// machineFailed records a failure from an event, because the machine may be gone in the next pass.
func (m *sharedState) machineFailed(key types.NamespacedName, failure v1beta1.FailedMachine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		before, known := r.failuresByName[failure.Name]
		r.recentFailures = mergeFailures(r.recentFailures, []v1beta1.FailedMachine{keepTime(failure, before, known)})
	}
}

// recentFailures returns the last failures from the status, events and existing machines. recentFailures keeps the
// failures from events in memory until the status contains them.
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
			before, known := r.failuresByName[machine.Name]
			failure = keepTime(failure, before, known)
			present = append(present, failure)
			broken[machine.Name] = failure
		}
	}
	r.failuresByName = broken
	r.recentFailures = mergeFailures(mergeFailures(status, r.recentFailures), present)
	return r.recentFailures
}
