package machinedeployment

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// failuresInARow is how many machines of a new revision may fail to launch before its rollout stops.
const failuresInARow = 3

// launchFailure is a machine of a set that failed to launch.
type launchFailure struct {
	set types.UID
	at  time.Time
}

// failures remembers machines of one set that failed to launch. Their own set replaces them, so they are seldom there
// at the same time.
type failures struct {
	set types.UID
	at  map[types.UID]time.Time
}

// observe takes note of the set's machines, and of those seen failing that may be gone by now. It returns how many
// failed in a row, and when one last became Ready.
func (f *failures) observe(set types.UID, machines []*v1beta1.Machine, seen map[types.UID]launchFailure) (inARow int, ready time.Time) {
	if f.set != set {
		*f = failures{set: set, at: map[types.UID]time.Time{}}
	}
	for uid, failure := range seen {
		if failure.set == set {
			f.at[uid] = failure.at
		}
	}
	for _, m := range machines {
		if at, ok := readySince(m); ok && at.After(ready) {
			ready = at
		}
	}
	for _, m := range machines {
		switch {
		case refused(m):
			// It may recover without being replaced, so it counts only while it is refused.
			inARow++
		case failedToLaunch(m):
			if _, known := f.at[m.UID]; !known {
				f.at[m.UID] = failedAt(m)
			}
		}
	}
	for uid, at := range f.at {
		if !at.After(ready) {
			delete(f.at, uid)
		}
	}
	inARow += len(f.at)
	f.forgetOldest()
	return inARow, ready
}

// forgetOldest keeps no more than are needed to know that the revision fails.
func (f *failures) forgetOldest() {
	if len(f.at) <= failuresInARow {
		return
	}
	times := make([]time.Time, 0, len(f.at))
	for _, at := range f.at {
		times = append(times, at)
	}
	slices.SortFunc(times, func(a, b time.Time) int { return b.Compare(a) })
	for uid, at := range f.at {
		if at.Before(times[failuresInARow-1]) {
			delete(f.at, uid)
		}
	}
}

// failing decides whether the revision fails: enough machines in a row did, or they did before and none of that revision
// became Ready since. The condition Progressing is the memory that survives a restart.
func failing(inARow int, ready time.Time, d *v1beta1.MachineDeployment, revision int64) bool {
	if inARow >= failuresInARow {
		return true
	}
	progressing := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
	return progressing != nil && progressing.Reason == v1beta1.ReasonRevisionFailing &&
		d.Status.CurrentRevision == revision && !ready.After(progressing.LastTransitionTime.Time)
}

func readySince(m *v1beta1.Machine) (time.Time, bool) {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	return ready.LastTransitionTime.Time, true
}

// failedToLaunch reports whether the machine failed before it ever was a Node.
func failedToLaunch(m *v1beta1.Machine) bool {
	if m.Status.Phase != v1beta1.MachineFailed {
		return false
	}
	switch m.Status.FailureReason {
	case v1beta1.FailureCreateError, v1beta1.FailureInsufficientResources, v1beta1.FailureJoinClusterTimeout:
		return true
	}
	return false
}

// refused reports whether the machine's configuration is refused: nobody replaces it, and nothing is tried until
// something changes.
func refused(m *v1beta1.Machine) bool {
	launched := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionLaunched)
	if launched == nil || launched.Status != metav1.ConditionFalse || !m.DeletionTimestamp.IsZero() {
		return false
	}
	switch launched.Reason {
	case v1beta1.ReasonInvalidConfiguration, v1beta1.ReasonUnknownTypeVersion, v1beta1.ReasonClassNotFound,
		v1beta1.ReasonCredentialsNotFound, v1beta1.ReasonUserDataNotFound:
		return true
	}
	return false
}

// failedAt returns the last time that anything is known to have happened to the machine.
func failedAt(m *v1beta1.Machine) time.Time {
	last := m.CreationTimestamp.Time
	later := func(t metav1.Time) {
		if t.After(last) {
			last = t.Time
		}
	}
	for _, c := range m.Status.Conditions {
		later(c.LastTransitionTime)
	}
	if m.Status.LastOperation != nil && m.Status.LastOperation.LastUpdateTime != nil {
		later(*m.Status.LastOperation.LastUpdateTime)
	}
	return last
}
