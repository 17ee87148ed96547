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

// failuresInARow is the number of consecutive launch failures that stops the rollout of a revision.
const failuresInARow = 3

type launchFailure struct {
	set     types.UID
	machine v1beta1.FailedMachine
}

// failures holds the machines of one set that failed to launch, by name. The set replaces these machines, but the
// status lists them until a machine of the set becomes Ready.
type failures struct {
	set      types.UID
	machines map[string]v1beta1.FailedMachine
	// hasRecovered is true if a machine became Ready and fewer than failuresInARow machines have failed since then.
	hasRecovered bool
	// readyMachines holds the names of the machines that were Ready in the last pass, and is nil before the first
	// pass. supersededMachines holds existing machines that failed before another machine became Ready.
	readyMachines, supersededMachines map[string]bool
}

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

// observe records the failures of existing machines, and the failures in the list seen, which were taken from events.
// It returns the number of consecutive failures and the time at which a machine last became Ready.
func (f *failures) observe(set types.UID, machines []*v1beta1.Machine, seen []launchFailure) (inARow int,
	ready time.Time) {
	if f.set != set || f.machines == nil {
		*f = failures{set: set, machines: map[string]v1beta1.FailedMachine{}}
	}
	if f.sawReady(machines) {
		// Do not compare times, because the provider's clock may have been set back.
		f.hasRecovered = f.hasRecovered || len(f.machines) > 0
		for name := range f.machines {
			f.supersededMachines[name] = true
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
		case machinestate.IsLive(m) && machinestate.UnlaunchableCondition(m) != nil:
			// A machine that cannot be launched may recover without being replaced.
			inARow++
		case ok && !known && !f.supersededMachines[m.Name]:
			f.machines[m.Name] = failed
		case !ok && known && machinestate.IsLive(m) && requestedByHealthCheck(before.Reason):
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
	f.hasRecovered = (f.hasRecovered || recorded > 0 && len(f.machines) == 0) && inARow < failuresInARow
	f.forgetOldest()
	return inARow, ready
}

// sawReady reports whether a machine has become Ready since the previous pass, and records the Ready machines.
func (f *failures) sawReady(machines []*v1beta1.Machine) (became bool) {
	ready, superseded := map[string]bool{}, map[string]bool{}
	for _, m := range machines {
		if _, ok := readySince(m); ok {
			ready[m.Name] = true
			became = became || f.readyMachines != nil && !f.readyMachines[m.Name]
		}
		if f.supersededMachines[m.Name] {
			superseded[m.Name] = true
		}
	}
	f.readyMachines, f.supersededMachines = ready, superseded
	return became
}

func updatesRejected(machines []*v1beta1.Machine) (n int) {
	for _, m := range machines {
		if handover.UpdateRejected(m) {
			n++
		}
	}
	return n
}

func (f *failures) forgetOldest() {
	newestFirst := slices.SortedFunc(maps.Values(f.machines), func(a, b v1beta1.FailedMachine) int {
		return cmp.Or(b.Time.Compare(a.Time.Time), cmp.Compare(a.Name, b.Name))
	})
	for _, failed := range newestFirst[min(len(newestFirst), failuresInARow):] {
		delete(f.machines, failed.Name)
	}
}

// failing reports whether enough machines failed in a row and none has become Ready since then. After a restart, the
// condition Progressing provides this state. If this process has observed a recovery, it ignores the condition. The
// transition time of the condition and the Ready times of machines come from different clocks.
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

// failedToLaunch returns the failure of a machine whose Node never became Ready, or false. A machine that a health
// check found unhealthy is also a launch failure, although it may be deleted before its phase becomes Failed.
func failedToLaunch(m *v1beta1.Machine) (failed v1beta1.FailedMachine, ok bool) {
	requested := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionRemediationRequested)
	switch {
	case machinestate.HasFailed(m):
		return failedMachine(m), isLaunchFailure(m.Status.FailureReason)
	case machinestate.IsStarting(m) && requested != nil && requested.Status == metav1.ConditionTrue:
		return v1beta1.FailedMachine{Name: m.Name, Reason: requested.Reason, Message: wording.Shorten(requested.Message),
			Time: requested.LastTransitionTime.DeepCopy()}, requestedByHealthCheck(requested.Reason)
	}
	return failed, false
}

// requestedByHealthCheck reports whether a health check requested the remediation. A request by an administrator does
// not mean that the revision is broken.
func requestedByHealthCheck(reason string) bool {
	switch reason {
	case v1beta1.ReasonMachineHealthCheck, v1beta1.ReasonBuiltInPolicy, v1beta1.ReasonExternalRemediation,
		v1beta1.ReasonExternalRemediationFailed, v1beta1.ReasonReplaceAfterRemediation, v1beta1.ReasonRebootRequested,
		v1beta1.ReasonReplaceAfterReboot:
		return true
	}
	return false
}

func isLaunchFailure(reason v1beta1.MachineFailureReason) bool {
	switch reason {
	case v1beta1.FailureCreateError, v1beta1.FailureInsufficientResources, v1beta1.FailureJoinClusterTimeout:
		return true
	}
	return false
}

// lastChangedAt returns the time at which the provider last changed the machine's status, by the provider's clock. If
// the status contains no time, it returns the machine's creation time, by the API server's clock.
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
