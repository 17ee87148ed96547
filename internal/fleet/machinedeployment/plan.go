package machinedeployment

import (
	"fmt"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/rollout/bounds"
	"machinist.dev/machinist/internal/fleet/rollout/victims"
	"machinist.dev/machinist/internal/platform/wording"
)

// Bounds are how far a rollout may go beyond replicas and below them.
type Bounds = bounds.Bounds

// Unknown is State.SizedFor where nothing was recorded.
const Unknown int32 = -1

// State is all that a plan depends on.
type State struct {
	Strategy v1beta1.DeploymentStrategyType
	// Manual says that people select the machines that the strategy InPlace updates.
	Manual bool
	// Replicas is the number of machines wanted.
	Replicas int32
	// Bounds are how far the rollout may go beyond it and below it.
	Bounds
	// SizedFor is the number of replicas that the sets were last sized for, or Unknown.
	SizedFor int32
	// Paused and Frozen stop rollouts; Frozen stops growth of any kind too.
	Paused, Frozen bool
	// Failing says that the newest revision does not launch.
	Failing bool
	// DisruptionDenied says what allows no machine at all to be disrupted, empty if nothing does. Then no rollout begins.
	DisruptionDenied string
	// VersionSkew says why the wanted revision has a version that the target cluster does not support, empty if it may be
	// rolled out.
	VersionSkew string
	// Sets of the deployment, the oldest revision first.
	Sets []Set
	// Current is the index in Sets of the set that has the wanted template; -1 if there is none.
	Current int
}

// Set is the state of one MachineSet that a plan depends on.
type Set struct {
	Name string
	// Replicas is the set's spec.replicas.
	Replicas int32
	// Least and Most are the bounds of the replicas that its controller may act upon: the present ones, and earlier ones
	// while it has not observed the change.
	Least, Most int32
	// Behind says that its controller has not observed its generation yet.
	Behind bool
	// Leaving says that the set itself is being deleted: it creates no machines, and its machines will be deleted.
	Leaving bool
	// Role is the set's role in a hand-over.
	Role

	// Live machines have no deletionTimestamp, Deleting ones do.
	Live, Deleting int32
	// Ready, Available, Unhealthy and Marked (for deletion) count live machines.
	Ready, Available, Unhealthy, Marked int32
	// Unlaunched counts the live machines that have no instance.
	Unlaunched int32
	// Updating counts the available machines whose instance is not up to date.
	Updating int32
	// Selected counts the live machines that people have selected for an update in place, and SelectedIdle those of them
	// that are not Ready or not up to date.
	Selected, SelectedIdle int32
	// Denied counts the live machines that budgets hold back now, and Exchanged those that must be exchanged for others
	// and are not denied. ExchangedUnavailable counts those of the latter that
	// are not available.
	Denied, Exchanged, ExchangedUnavailable int32
	// ExchangeSurge is Plan.ExchangeSurge as it was last recorded on the set.
	ExchangeSurge int32
	// Forecast is what deletions by the set cost.
	victims.Forecast

	// pendingBefore are the pending deletions before this plan. The set may have chosen the victims already, when other
	// machines were unavailable.
	pendingBefore int32
}

// Plan is what a deployment does next.
type Plan struct {
	// Scales are the changes of replicas, at most one for a set, in the order in which to apply them.
	Scales []Scale
	// Roles are the roles of all sets in a hand-over from now on, by index in State.Sets.
	Roles []Role
	// SizedFor becomes State.SizedFor of later plans.
	SizedFor int32
	// ExchangeSurge is how many machines the current set has, or gets, beyond replicas because others are exchanged.
	ExchangeSurge int32
	// Waiting says what the rollout waits for; it may be empty.
	Waiting string
	// ForPeople says that the rollout waits only for people to select machines.
	ForPeople bool
}

// Scale is a change of one set's replicas.
type Scale struct {
	// Set is an index in State.Sets.
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
		sizedFor, waiting = s.sizedForStill(), d.finishHandOver()
	case d.countReceived():
		sizedFor = s.sizedForStill()
	case s.deniedInPlace():
		// As in a rollout: old sets make no machines.
		d.giveUpLost()
		sizedFor += d.resize(shrinkOnly)
		d.growBesideOld()
		waiting = d.whyNotRolling()
	case !s.rolls():
		sizedFor += d.resize(growInProportion)
		if s.Frozen && s.SizedFor != Unknown && s.SizedFor < s.Replicas {
			sizedFor = s.SizedFor // the growth is made up for after the freeze
		}
		waiting = d.whyNotRolling()
	case d.exchanges():
		waiting = d.exchange()
	case s.Strategy == v1beta1.StrategyRecreate:
		waiting = d.recreate()
	case s.Strategy == v1beta1.StrategyOnDelete:
		sizedFor += d.resize(shrinkOnly)
		waiting = d.onDelete()
	case s.Strategy == v1beta1.StrategyInPlace:
		d.giveUpLost()
		sizedFor += d.resize(shrinkOnly)
		waiting = d.inPlace()
	default:
		sizedFor += d.resize(growInProportion)
		// Old sets that just grew in proportion are not shrunk by the same pass.
		if !d.grew() {
			waiting = d.rolling()
		}
	}
	return Plan{Scales: d.scales(), Roles: d.rolesNow(), SizedFor: sizedFor, ExchangeSurge: d.exchangeSurge(s),
		Waiting: waiting, ForPeople: d.forPeople}
}

// sizedForStill is SizedFor of a plan during which a change of replicas has to wait.
func (s State) sizedForStill() int32 {
	if s.SizedFor == Unknown {
		return s.Replicas
	}
	return s.SizedFor
}

// rolls reports whether machines of one revision may be replaced by those of another.
func (s State) rolls() bool {
	stopped := s.Failing && (s.Strategy == v1beta1.StrategyRollingUpdate || s.updatesInPlace())
	return !s.Paused && !s.Frozen && !stopped && s.DisruptionDenied == "" && s.VersionSkew == "" && s.Current >= 0
}

// old reports whether set i is of another revision than the wanted one.
func (s State) old(i int) bool { return i != s.Current }

// outdated returns how many machines of other revisions than the wanted one exist or may still be created.
func (d *draft) outdated() int32 {
	var n int32
	for i, set := range d.Sets {
		if d.old(i) {
			n += ceiling(set)
		}
	}
	return n
}

// whyNotRolling says what stops the rollout, if there are outdated machines.
func (d *draft) whyNotRolling() string {
	outdated := d.outdated()
	switch {
	case d.Frozen:
		return "the deployment is frozen: no machine is added or exchanged"
	case outdated == 0 && d.Current >= 0:
		return d.DisruptionDenied
	case d.Paused:
		return fmt.Sprintf("rollouts are paused, with %s of an old revision", wording.Count(outdated, "machine"))
	case d.VersionSkew != "":
		return d.VersionSkew
	case d.DisruptionDenied != "":
		return fmt.Sprintf("%s, with %s of an old revision", d.DisruptionDenied, wording.Count(outdated, "machine"))
	case d.Failing:
		return fmt.Sprintf("the newest revision fails, and nothing is done about %s of an old revision",
			wording.Count(outdated, "machine"))
	}
	return "there is no set of the wanted revision"
}
