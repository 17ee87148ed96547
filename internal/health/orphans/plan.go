package orphans

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/internal/platform/sharding"
	"machinist.dev/machinist/pkg/provider"
)

// Rules are the settings of the user for orphans.
type Rules struct {
	// ClusterID is in the tags of the instances of this installation.
	ClusterID string
	// Namespace is the only namespace of this installation. Empty means all namespaces.
	Namespace string
	// Shard is the part of the namespaces whose instances are checked. The zero value is all namespaces.
	Shard sharding.Shard
	// Period is the time between two passes. Nothing is removed until one period after an outage.
	Period time.Duration
	// MinAge is the age at which an instance without a Machine can be an orphan.
	MinAge time.Duration
	// MaxDeletes is the maximum number of orphans that one pass removes.
	MaxDeletes int
	// ReportOnly reports orphans instead of removing them.
	ReportOnly bool
}

// State is the input of the decisions of one pass.
type State struct {
	Rules
	Now time.Time
	// Listed is when the last list was read. The first observation of an orphan counts from then. The default is Now.
	Listed time.Time
	// Stable is the time from which this process has led and both clusters have answered. It is zero if the process does
	// not lead now, or a cluster does not answer.
	Stable time.Time
	// Instances are the instances in complete lists, each once.
	Instances []provider.Instance
	// Leftovers are the parts in the same lists that belong to no instance.
	Leftovers []Leftovers
	// Recorded are the provider IDs that the Machines in the cache had before the instances were listed, by the UID of the
	// Machine. The ID is empty if the Machine has no provider ID.
	Recorded map[types.UID]string
	// Live are the UIDs in a consistent, unfiltered list of Machines that the API server returned after the instances were
	// listed. It is nil if there is no such list.
	Live map[types.UID]bool
	// Elsewhere are the provider IDs that Machines of other shards had recorded in that list.
	Elsewhere map[string]bool
	// Before are the observations of the pass before. InstancesBefore are the Instances of its Plan. Both are nil if there
	// was no pass before.
	Before          Observations
	InstancesBefore map[string]int

	// NodeReady has the names of Ready Nodes, by the ID of the instance without a Machine that the Node belongs to.
	NodeReady map[string]string
	// Blocked means that a class reports MostInstancesOrphaned, or that the Ledger does right after a restart.
	Blocked bool
	// Confirmed has the IDs of orphans that may be removed now. They were found with a class on which an administrator
	// confirmed the removal, or force-deleted Machines left them.
	Confirmed map[string]bool
	// ForceDeleted are the force-deleted Machines that may have left something in the cloud.
	ForceDeleted forceDeleted
}

// Observations are the orphans and duplicates of one pass, by the IDs of their decisions. Orphans that the pass did not
// see, or could not whose, are not included.
type Observations map[string]Observation

// Observation is what is remembered about one orphan or duplicate.
type Observation struct {
	// Machine is the UID of the Machine in its tags. With another UID, it is another instance.
	Machine types.UID
	// Duplicate is true for a duplicate and false for an orphan.
	Duplicate bool
	// First is when it was first seen.
	First time.Time
	// Attempts is the number of attempts to remove it.
	Attempts int
	// Reported means that it was counted in the metric and reported by an event.
	Reported bool
	// Blocked means that most instances lost their Machines together with this one. It stays true when replacements of the
	// lost Machines turn the orphans into a minority.
	Blocked bool
	// Warned means that an event reported that its removal waits for a confirmation.
	Warned bool
	// Drain is the drain of its Node, if one began.
	Drain Drain
}

// Drain is a drain of the Node of an orphan.
type Drain struct {
	// Node and UID identify the Node. They are empty if no drain began.
	Node string
	UID  types.UID
	// Began is when the drain began. Epoch identifies the time between two outages of the target cluster in which it
	// began.
	Began time.Time
	Epoch uint64
}

// Outcome is the decision about an instance or about leftovers.
type Outcome string

const (
	// Delete means that it is removed now.
	Delete Outcome = "Delete"
	// Report means that it would be removed if Rules.ReportOnly were false.
	Report Outcome = "Report"
	// Duplicate means that the Machine of the instance has another instance. The instance is kept, because only the
	// Machine's own controller knows the state of the Machine.
	Duplicate Outcome = "Duplicate"

	// MostOrphaned means that most instances lost their Machines at once. None of them is removed until an administrator
	// confirms.
	MostOrphaned Outcome = "MostOrphaned"
	// NodeReady means that the Node of the instance is Ready. It is not removed until an administrator confirms.
	NodeReady Outcome = "NodeReady"

	// With each of the outcomes below, the instance is kept.

	// OtherInstallation means that the cluster ID or the namespace in the tags belongs to another installation or another
	// shard.
	OtherInstallation Outcome = "OtherInstallation"
	// Untagged means that the tags do not identify a Machine.
	Untagged Outcome = "Untagged"
	// Owned means that the instance has a Machine, or that the leftovers are parts of a machine that has an instance.
	Owned Outcome = "Owned"
	// Undetermined means that the cache has no Machine for it, and that the API server could not be asked.
	Undetermined Outcome = "Undetermined"
	// Unconfirmed means that the pass before did not see this orphan or duplicate.
	Unconfirmed Outcome = "Unconfirmed"
	// TooYoung means that the orphan may just have been created.
	TooYoung Outcome = "TooYoung"
	// AfterOutage means that the last outage ended less than a period ago.
	AfterOutage Outcome = "AfterOutage"
	// OverLimit means that this pass already removes Rules.MaxDeletes orphans.
	OverLimit Outcome = "OverLimit"
	// ForceDeleted is the outcome of ledger entries for Machines that were force-deleted and may have left something that
	// no list has shown yet.
	ForceDeleted Outcome = "ForceDeleted"
)

// Decision is the decision about one instance, or about the leftovers of one machine.
type Decision struct {
	// ID is the provider ID of the instance, or the ID of Leftovers.
	ID string
	// Instance has only the tags and the launch time if Parts is not empty.
	Instance provider.Instance
	// Parts are the IDs of the leftovers. It is empty for an instance.
	Parts   []string
	Outcome Outcome
}

// Plan is the result of Decide.
type Plan struct {
	// Decisions are about all instances and leftovers, in the order of their IDs. The ones to remove come first: those
	// with the fewest attempts, and among them those that were seen first.
	Decisions []Decision
	// Observations and Instances are inputs of the next pass. Instances are the numbers of instances with this
	// installation's tags by namespace. The key "" has the total.
	Observations Observations
	Instances    map[string]int
}

// Decide finds the orphans and decides which ones to remove. It removes an instance only under all of these conditions:
//
//   - The tags have this installation's cluster ID, the UID of a Machine, and one of this installation's namespaces.
//   - The Machine is neither in the cache nor at the API server, and no other Machine has recorded the instance.
//   - Both were also true in the pass before.
//   - The instance is old enough.
//
// The absence of the Machine proves something because Machines are listed after instances: nothing is created for a
// Machine that does not exist yet, and a Machine is not deleted before its instance. The same rules apply to leftovers.
// In addition, the lists must not contain an instance of their machine.
//
// Two signs suggest that the Machine was lost although the instance is in use: most instances lost their Machines at
// once, or the Node is Ready. Then the removal waits until an administrator confirms it.
func Decide(s State) Plan {
	p := Plan{Observations: Observations{}, Instances: map[string]int{}}
	subjects, outcomes := s.subjects()
	var due []Decision
	most := s.mostOrphaned(subjects, outcomes, p.Instances)
	for i, d := range subjects {
		in := &d.Instance
		outcome := outcomes[i]
		if outcome == Delete || outcome == Duplicate {
			observation, again := s.Before[d.ID]
			if !again || observation.Machine != in.MachineUID || observation.Duplicate != (outcome == Duplicate) {
				observation, again = Observation{Machine: in.MachineUID, Duplicate: outcome == Duplicate,
					First: latest(s.Now, s.Listed)}, false
			}
			observation.Blocked = outcome == Delete && !s.deletedByForce(in) &&
				(observation.Blocked || s.Blocked || most[everywhere] || most[namespaceOf(in)])
			p.Observations[d.ID] = observation
			switch {
			case !again:
				outcome = Unconfirmed
			case outcome == Delete:
				outcome = s.orphanOutcome(d.ID, in, observation)
			}
		}
		d.Outcome = outcome
		if outcome == Delete {
			due = append(due, d)
			continue
		}
		p.Decisions = append(p.Decisions, d)
	}
	slices.SortFunc(due, func(a, b Decision) int {
		x, y := p.Observations[a.ID], p.Observations[b.ID]
		return cmp.Or(cmp.Compare(x.Attempts, y.Attempts), x.First.Compare(y.First), byID(a, b))
	})
	for i := max(s.MaxDeletes, 0); i < len(due); i++ {
		due[i].Outcome = OverLimit
	}
	slices.SortFunc(p.Decisions, byID)
	p.Decisions = append(due, p.Decisions...)
	return p
}

// subjects returns everything that a decision is needed for, each with the outcome of classify.
func (s *State) subjects() (subjects []Decision, outcomes []Outcome) {
	claimed := map[string]bool{}
	for _, id := range s.Recorded {
		claimed[id] = true
	}
	listed := map[types.UID]bool{}
	for _, in := range s.Instances {
		listed[in.MachineUID] = true
		subjects = append(subjects, Decision{ID: in.ProviderID, Instance: in})
	}
	for i := range s.Leftovers {
		subjects = append(subjects, s.Leftovers[i].subject())
	}
	outcomes = make([]Outcome, len(subjects))
	for i := range subjects {
		outcomes[i] = s.classify(&subjects[i], claimed, listed)
	}
	return subjects, outcomes
}

// classify returns Delete if an instance or leftovers have no owner, else the reason why they are kept. claimed are the
// provider IDs that Machines have recorded. listed are the UIDs of the Machines of listed instances.
func (s *State) classify(d *Decision, claimed map[string]bool, listed map[types.UID]bool) Outcome {
	in := &d.Instance
	namespace, name, named := strings.Cut(in.MachineKey, "/")
	switch {
	case s.ClusterID == "" || in.ClusterID != s.ClusterID:
		return OtherInstallation
	case d.ID == "" || in.MachineUID == "" || !named || namespace == "" || name == "" || strings.Contains(name, "/"):
		return Untagged
	case s.Namespace != "" && namespace != s.Namespace, !s.Shard.Owns(namespace):
		return OtherInstallation
	case claimed[d.ID]:
		return Owned
	}
	recorded, cached := s.Recorded[in.MachineUID]
	switch {
	case len(d.Parts) > 0 && (cached || listed[in.MachineUID]):
		return Owned
	case cached && recorded != "":
		return Duplicate
	case cached, s.Live[in.MachineUID]:
		return Owned
	case s.Live == nil:
		return Undetermined
	case s.Elsewhere[d.ID]:
		return Owned
	}
	return Delete
}

const (
	// minMostOrphaned is the lowest number of orphans that can be most instances. An interrupted creation or a removed
	// finalizer leaves one or two orphans behind, which may be all instances there are. Three of three may be a whole
	// cluster.
	minMostOrphaned = 3
	// mostOrphanedDivisor makes half of the instances count as most of them. Otherwise, replacements of all lost machines
	// would hide the loss.
	mostOrphanedDivisor = 2
	// everywhere is the key of the total of all namespaces.
	everywhere = ""
)

// mostOrphaned returns the namespaces in which most instances have no Machine. It includes everywhere if that is true
// of all namespaces together. It writes the numbers of instances of this pass into instances.
//
// Only orphans that the pass before saw too count, because a list may still show instances that Machines removed in
// order. Their number is compared with the number of instances of this pass or of the pass before, whichever is lower.
// Instances that are being terminated and remnants of force-deleted Machines do not count.
func (s *State) mostOrphaned(subjects []Decision, outcomes []Outcome, instances map[string]int) map[string]bool {
	orphaned := map[string]int{}
	for i := range subjects {
		in := &subjects[i].Instance
		if len(subjects[i].Parts) > 0 || in.State == provider.StateTerminating || s.deletedByForce(in) {
			continue
		}
		switch outcomes[i] {
		case Owned, Duplicate:
		case Delete:
			if before, again := s.Before[subjects[i].ID]; again && before.Machine == in.MachineUID && !before.Duplicate {
				orphaned[everywhere]++
				orphaned[namespaceOf(in)]++
			}
		default:
			continue
		}
		instances[everywhere]++
		instances[namespaceOf(in)]++
	}
	most := map[string]bool{}
	for namespace, n := range orphaned {
		of := instances[namespace]
		if before, known := s.InstancesBefore[namespace]; known {
			of = min(of, before)
		}
		most[namespace] = n >= minMostOrphaned && n*mostOrphanedDivisor >= of
	}
	return most
}

func namespaceOf(in *provider.Instance) string { return namespaceIn(in.MachineKey) }

// namespaceIn returns the namespace in "namespace/name".
func namespaceIn(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

// orphanOutcome decides whether an orphan is removed now.
func (s *State) orphanOutcome(id string, in *provider.Instance, seen Observation) Outcome {
	switch {
	case seen.Blocked && !s.Confirmed[id] && !s.ReportOnly:
		// This check comes first. Until the class reports it, a restart forgets that most instances were lost.
		return MostOrphaned
	case !s.isOld(in, seen.First, s.Now):
		return TooYoung
	case s.Stable.IsZero() || s.Now.Sub(s.Stable) < s.Period:
		return AfterOutage
	case s.ReportOnly:
		return Report
	case s.Confirmed[id]:
		return Delete
	case s.NodeReady[id] != "":
		return NodeReady
	}
	return Delete
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// clockDifference is the largest expected difference between the clocks of the provider and of this process.
const clockDifference = 15 * time.Minute

// isOld reports whether an instance is older than MinAge. first is when it was first seen. The provider's time alone is
// enough only if it exceeds MinAge by clockDifference.
func (r *Rules) isOld(in *provider.Instance, first, now time.Time) bool {
	known := now.Sub(first) >= r.MinAge
	if in.LaunchTime.IsZero() {
		return known
	}
	reported := now.Sub(in.LaunchTime)
	return reported >= r.MinAge+clockDifference || reported >= r.MinAge && known
}

// Confirm reports whether an instance that was read just now is still the one that the plan removes.
func Confirm(r Rules, planned, read *provider.Instance) bool {
	return read != nil && r.ClusterID != "" &&
		read.ProviderID == planned.ProviderID &&
		read.ClusterID == r.ClusterID &&
		read.MachineUID == planned.MachineUID &&
		read.MachineKey == planned.MachineKey &&
		(read.LaunchTime.IsZero() || read.LaunchTime.Equal(planned.LaunchTime))
}

// candidates reports whether some instances can be classified only with a list of Machines from the API server.
func (s *State) candidates() bool {
	return slices.ContainsFunc(Decide(*s).Decisions, func(d Decision) bool { return d.Outcome == Undetermined })
}

// orphans returns all instances and leftovers without a Machine, whatever the decision about them.
func (s *State) orphans() (all []Decision) {
	subjects, outcomes := s.subjects()
	for i := range subjects {
		if outcomes[i] == Delete {
			all = append(all, subjects[i])
		}
	}
	return all
}

func byID(a, b Decision) int { return cmp.Compare(a.ID, b.ID) }
