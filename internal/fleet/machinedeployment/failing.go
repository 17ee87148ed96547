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

// failuresInARow is how many machines of a new revision may fail to launch before its rollout stops.
const failuresInARow = 3

// launchFailure is a machine of a set that failed to launch.
type launchFailure struct {
	set     types.UID
	machine v1beta1.FailedMachine
}

// failures has the machines of one set that failed to launch, by their names, which are never used twice. The set
// replaces them, so they seldom exist at the same time. The status of the deployment lists them until a machine of
// the set becomes Ready.
type failures struct {
	set      types.UID
	machines map[string]v1beta1.FailedMachine
	// recovered says that a machine became Ready after all that were recorded, and that no more than a few failed since.
	recovered bool
	// ready has the machines that were Ready in the last pass, nil before the first; over those whose failures were before
	// another machine became Ready and that are not gone yet.
	ready, over map[string]bool
}

// restore takes over the failures in a status, unless the set is known already.
func (f *failures) restore(set *v1beta1.MachineSet, described []v1beta1.FailedMachine) {
	if f.set == set.UID {
		return
	}
	*f = failures{set: set.UID, machines: map[string]v1beta1.FailedMachine{}}
	for _, m := range described {
		random, ok := strings.CutPrefix(m.Name, set.Name+"-")
		if ok && !strings.Contains(random, "-") && m.Time != nil &&
			(failureOfLaunch(v1beta1.MachineFailureReason(m.Reason)) || givenUpByCheck(m.Reason)) {
			f.machines[m.Name] = m
		}
	}
}

// replaced returns those that are not among the set's machines any more.
func (f *failures) replaced(machines []*v1beta1.Machine) []v1beta1.FailedMachine {
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

// observe records the failures among the set's machines, and those that events reported of machines that may be gone by
// now. It returns how many failed in a row, and when a machine last became Ready.
func (f *failures) observe(set types.UID, machines []*v1beta1.Machine, seen []launchFailure) (inARow int,
	ready time.Time) {
	if f.set != set || f.machines == nil {
		*f = failures{set: set, machines: map[string]v1beta1.FailedMachine{}}
	}
	if f.sawReady(machines) {
		// Whatever the times are: the provider's clock may have been set back in between.
		f.recovered = f.recovered || len(f.machines) > 0
		for name := range f.machines {
			f.over[name] = true
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
			// It may recover without being replaced, so it counts only while it is unlaunchable.
			inARow++
		case ok && !known && !f.over[m.Name]:
			f.machines[m.Name] = failed
		case !ok && known && machinestate.Live(m) && givenUpByCheck(before.Reason):
			delete(f.machines, m.Name) // The check has taken its request back, and the machine may yet become Ready.
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

// sawReady reports whether a machine is Ready that was not in the pass before, and takes note of those that are.
func (f *failures) sawReady(machines []*v1beta1.Machine) (became bool) {
	ready, over := map[string]bool{}, map[string]bool{}
	for _, m := range machines {
		if _, ok := readySince(m); ok {
			ready[m.Name] = true
			became = became || f.ready != nil && !f.ready[m.Name]
		}
		if f.over[m.Name] {
			over[m.Name] = true
		}
	}
	f.ready, f.over = ready, over
	return became
}

// updatesRefused returns how many machines could not be updated in place. They may recover without being replaced, so
// they count only until then.
func updatesRefused(machines []*v1beta1.Machine) (n int) {
	for _, m := range machines {
		if handover.UpdateRejected(m) {
			n++
		}
	}
	return n
}

// forgetOldest keeps as many failures as a failing revision needs.
func (f *failures) forgetOldest() {
	newestFirst := slices.SortedFunc(maps.Values(f.machines), func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, failed := range newestFirst[min(len(newestFirst), failuresInARow):] {
		delete(f.machines, failed.Name)
	}
}

// failing decides whether the revision fails: enough machines failed in a row, or did before, and no machine of the
// revision became Ready since. The condition Progressing carries this over a restart, by the manager's clock: that of
// the provider, which says when a machine became Ready, may be behind it, so a recovery that was observed counts more.
func failing(inARow int, ready time.Time, recovered bool, d *v1beta1.MachineDeployment, revision int64) bool {
	if inARow >= failuresInARow || recovered {
		return inARow >= failuresInARow
	}
	progressing := meta.FindStatusCondition(d.Status.Conditions, v1beta1.ConditionProgressing)
	return progressing != nil && progressing.Reason == v1beta1.ReasonRevisionFailing &&
		d.Status.CurrentRevision == revision && !ready.After(progressing.LastTransitionTime.Time)
}

// readySince returns since when the machine is Ready and up to date.
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

// failedToLaunch returns the failure of a machine that failed before it was a Ready node, or that a health check wants
// replaced before it was one. The latter is soon gone, and never Failed. ok is false for any other machine.
func failedToLaunch(m *v1beta1.Machine) (failed v1beta1.FailedMachine, ok bool) {
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch {
	case machinestate.Failed(m):
		return failedMachine(m), failureOfLaunch(m.Status.FailureReason)
	case machinestate.Starting(m) && requested != nil && requested.Status == metav1.ConditionTrue:
		return v1beta1.FailedMachine{Name: m.Name, Reason: requested.Reason, Message: wording.Brief(requested.Message),
			Time: requested.LastTransitionTime.DeepCopy()}, givenUpByCheck(requested.Reason)
	}
	return failed, false
}

// givenUpByCheck reports whether the reason of RemediationRequested is a matter of health. A person may want any machine
// replaced, and that says nothing about its revision.
func givenUpByCheck(reason string) bool {
	switch reason {
	case v1beta1.ReasonMachineHealthCheck, v1beta1.ReasonBuiltInPolicy, v1beta1.ReasonExternalRemediation:
		return true
	}
	return false
}

func failureOfLaunch(reason v1beta1.MachineFailureReason) bool {
	switch reason {
	case v1beta1.FailureCreateError, v1beta1.FailureInsufficientResources, v1beta1.FailureJoinClusterTimeout:
		return true
	}
	return false
}

// lastChangedAt returns when the provider last changed the machine's status, by its clock: by the same one, machines
// become Ready. The machine's creation, by the API server's clock, counts only where there is no other time.
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
