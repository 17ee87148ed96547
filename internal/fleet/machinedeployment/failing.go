package machinedeployment

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/handover"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/wording"
)

// failuresInARow is the number of consecutive launch failures of a new revision at which the rollout stops.
const failuresInARow = 3

// launchFailure describes a machine of a set that failed to launch.
type launchFailure struct {
	set     types.UID
	machine v1beta1.FailedMachine
}

// failures contains the machines of one set that failed to launch, by name. A name is never used again. The set
// replaces these machines, so they rarely exist at the same time. The status of the deployment lists them until a
// machine of the set becomes Ready.
type failures struct {
	set      types.UID
	machines map[string]v1beta1.FailedMachine
	// recovered is true if a machine became Ready after all recorded failures, and fewer than failuresInARow
	// machines have failed since that time.
	recovered bool
	// ready contains the names of the machines that were Ready during the last pass. The map is nil before the
	// first pass. superseded contains the names of those existing machines that failed before another machine
	// became Ready.
	ready, superseded map[string]bool
}

// restore reads the failures from a status, unless the failures of this set are already recorded.
func (f *failures) restore(set *v1beta1.MachineSet, described []v1beta1.FailedMachine) {
	if f.set == set.UID {
		return
	}
	*f = failures{set: set.UID, machines: map[string]v1beta1.FailedMachine{}}
	for _, m := range described {
		random, ok := strings.CutPrefix(m.Name, set.Name+"-")
		if ok && !strings.Contains(random, "-") && m.Time != nil &&
			(isLaunchFailure(v1beta1.MachineFailureReason(m.Reason)) || requestedByHealthCheck(m.Reason)) {
			f.machines[m.Name] = m
		}
	}
}

// gone returns the recorded failures whose machines no longer exist or are being deleted.
func (f *failures) gone(machines []*v1beta1.Machine) []v1beta1.FailedMachine {
	var gone []v1beta1.FailedMachine
	for name, failed := range f.machines {
		if !slices.ContainsFunc(machines, func(m *v1beta1.Machine) bool {
			return m.Name == name && m.DeletionTimestamp.IsZero()
		}) {
			gone = append(gone, failed)
		}
	}
	return gone
}

// observe records the failures of the set's machines. It also records the failures in the parameter seen, which
// events reported. The machines of these failures may no longer exist. It returns the number of consecutive
// failures, and the time at which a machine last became Ready.
func (f *failures) observe(set types.UID, machines []*v1beta1.Machine, seen []launchFailure) (inARow int,
	ready time.Time) {
	if f.set != set || f.machines == nil {
		*f = failures{set: set, machines: map[string]v1beta1.FailedMachine{}}
	}
	if f.sawReady(machines) {
		// Do not compare times here, because the provider's clock may have been set back in the meantime.
		f.recovered = f.recovered || len(f.machines) > 0
		for name := range f.machines {
			f.superseded[name] = true
		}
		clear(f.machines)
	}
	for _, failure := range seen {
		if failure.set == set {
			f.machines[failure.machine.Name] = failure.machine
		}
	}
	for _, m := range machines {
		if at, ok := readySince(m); ok && at.After(ready) {
			ready = at
		}
	}
	for _, m := range machines {
		failed, ok := failedToLaunch(m)
		before, known := f.machines[m.Name]
		switch {
		case machinestate.Live(m) && machinestate.Unlaunchable(m) != nil:
			// An unlaunchable machine may recover without being replaced, so it counts only while it is unlaunchable.
			inARow++
		case ok && !known && !f.superseded[m.Name]:
			f.machines[m.Name] = failed
		case !ok && known && machinestate.Live(m) && requestedByHealthCheck(before.Reason):
			delete(f.machines, m.Name) // The check has withdrawn its request, and the machine may still become Ready.
		}
	}
	recorded := len(f.machines)
	for name, failed := range f.machines {
		if !failed.Time.After(ready) {
			delete(f.machines, name)
		}
	}
	inARow += len(f.machines)
	f.recovered = (f.recovered || recorded > 0 && len(f.machines) == 0) && inARow < failuresInARow
	f.forgetOldest()
	return inARow, ready
}

// sawReady reports whether any machine is Ready that was not Ready during the previous pass. It also updates the
// record of Ready machines.
func (f *failures) sawReady(machines []*v1beta1.Machine) (became bool) {
	ready, superseded := map[string]bool{}, map[string]bool{}
	for _, m := range machines {
		if _, ok := readySince(m); ok {
			ready[m.Name] = true
			became = became || f.ready != nil && !f.ready[m.Name]
		}
		if f.superseded[m.Name] {
			superseded[m.Name] = true
		}
	}
	f.ready, f.superseded = ready, superseded
	return became
}

// updatesRejected returns how many machines could not be updated in place. Such a machine may recover without being
// replaced, so it counts only until its update succeeds.
func updatesRejected(machines []*v1beta1.Machine) (n int) {
	for _, m := range machines {
		if handover.UpdateRejected(m) {
			n++
		}
	}
	return n
}

// forgetOldest keeps only the newest failures, up to the number at which a revision counts as failing.
func (f *failures) forgetOldest() {
	newestFirst := slices.SortedFunc(maps.Values(f.machines), func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, failed := range newestFirst[min(len(newestFirst), failuresInARow):] {
		delete(f.machines, failed.Name)
	}
}

// failing reports whether the revision is failing: enough machines failed in a row, and no machine of the revision has
// become Ready since. After a restart, this fact is restored from the condition Progressing. The time of that condition
// comes from the manager's clock. The time at which a machine became Ready comes from the provider's clock, which may
// be slow. Therefore an observed recovery takes precedence over these times.
func failing(inARow int, ready time.Time, recovered bool, d *v1beta1.MachineDeployment, revision int64) bool {
	if inARow >= failuresInARow || recovered {
		return inARow >= failuresInARow
	}
	progressing := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
	return progressing != nil && progressing.Reason == v1beta1.ReasonRevisionFailing &&
		d.Status.CurrentRevision == revision && !ready.After(progressing.LastTransitionTime.Time)
}

// readySince returns the time at which the machine became Ready. It returns false if the machine is not Ready or not up
// to date.
func readySince(m *v1beta1.Machine) (time.Time, bool) {
	ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady)
	if ready == nil || ready.Status != metav1.ConditionTrue {
		return time.Time{}, false
	}
	since := ready.LastTransitionTime.Time
	if updated := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate); updated != nil {
		if handover.Updating(m) {
			return time.Time{}, false
		}
		if updated.LastTransitionTime.After(since) {
			since = updated.LastTransitionTime.Time
		}
	}
	return since, true
}

// failedToLaunch returns the failure of a machine that failed before its Node was Ready. This includes machines
// whose replacement a health check requested before the Node was Ready. If a health check requested the
// replacement, the machine is soon deleted, and is never in the phase Failed. For any other machine, ok is false.
func failedToLaunch(m *v1beta1.Machine) (failed v1beta1.FailedMachine, ok bool) {
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch {
	case machinestate.Failed(m):
		return failedMachine(m), isLaunchFailure(m.Status.FailureReason)
	case machinestate.Starting(m) && requested != nil && requested.Status == metav1.ConditionTrue:
		return v1beta1.FailedMachine{Name: m.Name, Reason: requested.Reason, Message: wording.Brief(requested.Message),
			Time: requested.LastTransitionTime.DeepCopy()}, requestedByHealthCheck(requested.Reason)
	}
	return failed, false
}

// requestedByHealthCheck reports whether a reason of the condition RemediationRequested concerns the health of the
// machine. An administrator may request the replacement of any machine. Such a request does not indicate a problem of
// the revision.
func requestedByHealthCheck(reason string) bool {
	switch reason {
	case v1beta1.ReasonMachineHealthCheck, v1beta1.ReasonBuiltInPolicy, v1beta1.ReasonExternalRemediation:
		return true
	}
	return false
}

// isLaunchFailure reports whether a failure means that the machine's Node never became Ready.
func isLaunchFailure(reason v1beta1.MachineFailureReason) bool {
	switch reason {
	case v1beta1.FailureCreateError, v1beta1.FailureInsufficientResources, v1beta1.FailureJoinClusterTimeout:
		return true
	}
	return false
}

// lastChangedAt returns the time at which the provider last changed the machine's status. This time comes from the
// provider's clock, like the times at which machines become Ready. If there is no such time, lastChangedAt returns the
// machine's creation time, which comes from the API server's clock.
func lastChangedAt(m *v1beta1.Machine) time.Time {
	var last time.Time
	if ready := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionReady); ready != nil {
		last = ready.LastTransitionTime.Time
	}
	if o := m.Status.LastOperation; o != nil && o.LastUpdateTime != nil && o.LastUpdateTime.After(last) {
		last = o.LastUpdateTime.Time
	}
	if last.IsZero() {
		return m.CreationTimestamp.Time
	}
	return last
}
