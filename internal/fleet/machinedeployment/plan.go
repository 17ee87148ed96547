package machinedeployment

import (
	"fmt"
	"time"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
	"machinist.dev/machinist/internal/platform/wording"
)

// Bounds limit how far the number of machines may differ from replicas during a rollout.
type Bounds = bounds.Bounds

// UnknownSize means that State.SizedFor has not been recorded yet.
const UnknownSize int32 = -1

// State is the input of MakePlan.
type State struct {
	Strategy v1beta1.DeploymentStrategyType
	// Manual is true if an administrator selects the machines that the strategy InPlace updates.
	Manual bool
	// Replicas is the desired number of machines.
	Replicas int32
	// Bounds limit how far the number of machines may differ from Replicas.
	Bounds
	// SizedFor is the number of replicas for which the sets were last sized, or UnknownSize.
	SizedFor int32
	// Paused stops rollouts. Frozen stops rollouts and every other creation of machines.
	Paused, Frozen bool
	// Partition is how many machines stay on old revisions.
	Partition int32
	// PauseAfter is how many machines of the newest revision may exist until the rollout is promoted, or 0 without a
	// limit. PauseEnds is when the rollout continues without a promotion, or zero.
	PauseAfter int32
	PauseEnds  time.Time
	// Failing is true if machines of the newest revision fail to launch.
	Failing bool
	// DisruptionDenied is the reason why budgets allow no disruption now, so that no rollout begins. It is empty if
	// budgets allow a disruption.
	DisruptionDenied string
	// VersionWait explains why the wanted version must not be rolled out now, or is empty.
	VersionWait string
	// Sets are the deployment's sets, the oldest revision first.
	Sets []Set
	// CurrentIndex is the index in Sets of the set that has the wanted template, or -1 if there is none.
	CurrentIndex int
}

// Set is the part of a MachineSet's state on which a plan depends.
type Set struct {
	Name string
	// Replicas is the set's spec.replicas.
	Replicas int32
	// MinReplicas and MaxReplicas are the lowest and the highest replicas that the set's controller may have read.
	// Until the controller has observed the latest change, the range includes the earlier values of spec.replicas.
	MinReplicas, MaxReplicas int32
	// IsUnobserved is true if the set's controller has not observed the latest generation.
	IsUnobserved bool
	// BeingDeleted means that the set itself is being deleted, together with all its machines.
	BeingDeleted bool
	// Role says whether the set hands over or receives machines.
	Role

	// Live counts the machines without a deletionTimestamp, and Deleting counts the machines with a deletionTimestamp.
	// All numbers below count only live machines.
	Live, Deleting int32
	// Ready, Available and Unhealthy count the machines in each of these states. Marked counts machines with a delete
	// mark.
	Ready, Available, Unhealthy, Marked int32
	// Unlaunched counts the machines that have no instance.
	Unlaunched int32
	// Updating counts the available machines whose instance is not up to date.
	Updating int32
	// Selected counts the machines that are selected for an update in place. SelectedIdle counts the selected machines
	// whose update interrupts no pods, because they are not Ready or not up to date.
	Selected, SelectedIdle int32
	// Kept counts the machines of an old set that may stay as they are in the wanted revision, because their class
	// remains.
	Kept int32
	// Movable counts the machines that a set with an order by class can hand over, because the receiver has their class.
	Movable int32
	// Denied counts the machines that must not be disrupted now because of budgets.
	Denied int32
	// MarkedForReplacement counts the machines that have the annotation machinist.dev/replace and whose replacement
	// the budgets permit. UnavailableMarkedForReplacement counts the unavailable machines among the machines in
	// MarkedForReplacement.
	MarkedForReplacement, UnavailableMarkedForReplacement int32
	// ReplacementSurge is the number of machines that the set has in addition to its share of replicas, in order to
	// replace other machines. An annotation of the set records this number.
	ReplacementSurge int32
	// Forecast predicts which machines the set will delete.
	victims.Forecast

	// pendingBefore is the number of deletions that were pending before this plan. The set may already have chosen the
	// victims.
	pendingBefore int32
}

// Plan is the next change of a deployment.
type Plan struct {
	// Scales are the changes of replicas in the order in which to apply them, at most one for each set.
	Scales []Scale
	// Roles contains the new role of each set in a hand-over, by index in State.Sets.
	Roles []Role
	// SizedFor is the number of replicas for which this plan sizes the sets. The next plan gets this number as
	// State.SizedFor.
	SizedFor int32
	// ReplacementSurge is the number of machines that the current set gets in addition to replicas, in order to replace
	// other machines.
	ReplacementSurge int32
	// WaitMessage explains why the rollout does not advance, as a clause without a capital letter and full stop. It
	// may be empty.
	WaitMessage string
	// AwaitsSelection means that the rollout waits only for an administrator to select machines.
	AwaitsSelection bool
	// StopReason is the reason of the condition Progressing if partition or pauseAfter stops the rollout. Otherwise
	// StopReason is empty. StoppedAtRest is true if all machines that the rollout wants until then are available.
	StopReason    string
	StoppedAtRest bool
}

// Scale is a change of one set's replicas.
type Scale struct {
	// Set is the index of the scaled set in State.Sets.
	Set      int
	From, To int32
	Why      string
}

// MakePlan decides the replicas of each set.
func MakePlan(s State) Plan {
	d := newDraft(s)
	sizedFor := s.Replicas
	var waiting string
	switch {
	case d.handingOver():
		sizedFor, waiting = s.keptSizedFor(), d.finishHandOver()
	case d.countReceived():
		sizedFor = s.keptSizedFor()
	case s.deniedInPlace():
		// Old sets never create machines, not even without a rollout.
		d.shrinkOldToLive()
		sizedFor += d.resize(shrinkOnly)
		d.growCurrentBesideOld()
		waiting = d.whyNotRolling()
	case !s.mayRollOut():
		sizedFor += d.resize(growInProportion)
		if s.Frozen && s.SizedFor != UnknownSize && s.SizedFor < s.Replicas {
			sizedFor = s.SizedFor // The sets grow after the freeze.
		}
		waiting = d.whyNotRolling()
	case d.keptSource() >= 0:
		sizedFor, waiting = s.keptSizedFor(), d.handOverKept(d.keptSource())
	case d.replacesMarked():
		waiting = d.replaceMarked()
	case s.Strategy == v1beta1.StrategyRecreate:
		waiting = d.planRecreate()
	case s.Strategy == v1beta1.StrategyOnDelete:
		sizedFor += d.resize(shrinkOnly)
		waiting = d.planOnDelete()
	case s.Strategy == v1beta1.StrategyInPlace:
		d.shrinkOldToLive()
		sizedFor += d.resize(shrinkOnly)
		waiting = d.planInPlace()
	default:
		sizedFor += d.resize(growInProportion)
		// Old sets that have just grown in proportion must not shrink in the same pass.
		if !d.grew() {
			waiting = d.planRolling()
		}
	}
	return Plan{Scales: d.scales(), Roles: d.rolesNow(), SizedFor: sizedFor, ReplacementSurge: d.replacementSurge(s),
		WaitMessage: waiting, AwaitsSelection: d.awaitsSelection, StopReason: d.stopReason(), StoppedAtRest: d.atRest}
}

func (s State) keptSizedFor() int32 {
	if s.SizedFor == UnknownSize {
		return s.Replicas
	}
	return s.SizedFor
}

func (s State) mayRollOut() bool {
	stopped := s.Failing && (s.Strategy == v1beta1.StrategyRollingUpdate || s.updatesInPlace())
	return !s.Paused && !s.Frozen && !stopped && s.DisruptionDenied == "" && s.VersionWait == "" && s.CurrentIndex >= 0
}

func (s State) isOld(i int) bool { return i != s.CurrentIndex }

func (d *draft) outdatedMachines() int32 {
	var n int32
	for i, set := range d.Sets {
		if d.isOld(i) {
			n += ceiling(set)
		}
	}
	return n
}

// whyNotRolling returns why old machines are not replaced, or "" if there are none.
func (d *draft) whyNotRolling() string {
	outdated := d.outdatedMachines()
	switch {
	case d.Frozen:
		return "the deployment is frozen, so no machine is created or replaced"
	case outdated == 0 && d.CurrentIndex >= 0:
		return d.DisruptionDenied
	case d.Paused:
		return fmt.Sprintf("rollouts are paused, with %s of an old revision left", wording.Count(outdated, "machine"))
	case d.VersionWait != "":
		return d.VersionWait
	case d.DisruptionDenied != "":
		return fmt.Sprintf("%s, with %s of an old revision left", d.DisruptionDenied, wording.Count(outdated, "machine"))
	case d.Failing:
		return fmt.Sprintf("the newest revision fails, so the rollout has stopped with %s of an old revision left",
			wording.Count(outdated, "machine"))
	}
	return "the set of the wanted revision does not exist yet"
}
