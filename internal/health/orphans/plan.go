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

// Rules are the settings for the collection of orphans.
type Rules struct {
	// ClusterID is the cluster ID in the tags of this installation's instances.
	ClusterID string
	// Namespace restricts this installation to one namespace. Empty means all namespaces.
	Namespace string
	// Shard selects the namespaces whose instances are checked. The zero value selects all.
	Shard sharding.Shard
	// Period is the time between two passes. After an outage, no orphan is removed for the same time.
	Period time.Duration
	// MinAge is the minimum age of an orphan. A younger instance without a Machine is kept.
	MinAge time.Duration
	// MaxDeletes is the maximum number of orphans that one pass removes.
	MaxDeletes int
	// ReportOnly reports orphans instead of removing them.
	ReportOnly bool
}

// State is the input for the decisions of one pass.
type State struct {
	Rules
	Now time.Time
	// ListTime is the time at which the last list was read. For new orphans, this is the time of the first
	// observation. Defaults to Now.
	ListTime time.Time
	// StableSince is the time at which this process had become the leader and had reached both clusters. The field is
	// zero if the process is not the leader, or if a cluster cannot be reached.
	StableSince time.Time
	// Instances contains the instances of all complete lists, without repetitions.
	Instances []provider.Instance
	// Leftovers are the listed parts that belong to no instance.
	Leftovers []Leftovers
	// ProviderIDs maps the UIDs of the Machines in the cache to their provider IDs, which may be empty. The cache was
	// read before the instances were listed.
	ProviderIDs map[types.UID]string
	// LiveMachines contains the UIDs of all Machines at the API server. These Machines were listed after the
	// instances. If the Machines were not listed, LiveMachines is nil.
	LiveMachines map[types.UID]bool
	// OtherShardIDs is the set of provider IDs of the Machines of other shards. The IDs are from the same list of
	// Machines as those of the field LiveMachines.
	OtherShardIDs map[string]bool
	// PreviousObservations contains the observations of the previous pass, and PreviousInstances is Plan.Instances of
	// that pass. In the first pass, PreviousObservations and PreviousInstances are nil.
	PreviousObservations Observations
	PreviousInstances    map[string]int

	// NodeReady maps the ID of an instance without a Machine to the name of its Ready Node. Instances whose Node is not
	// Ready are missing.
	NodeReady map[string]string
	// IsBlocked is true if an earlier pass found most instances without a Machine. The conditions of the classes
	// contain this information, and after a restart also the Ledger.
	IsBlocked bool
	// ConfirmedIDs holds the IDs of orphans that may be removed: an administrator confirmed the removal on their
	// class, or their Machine was force-deleted.
	ConfirmedIDs map[string]bool
	// ForceDeleted contains the entries of the Ledger about force-deleted Machines that may still have resources in the
	// cloud.
	ForceDeleted forceDeleted
}

// Observations holds the orphans and duplicates of a pass, by the ID of the decision. It does not contain orphans that
// could not be classified.
type Observations map[string]Observation

// Observation is what a pass remembers about one orphan or duplicate.
type Observation struct {
	// Machine is the UID of the Machine in the tags of the instance. If the next pass finds another UID in the tags,
	// the observation does not apply to the instance.
	Machine types.UID
	// Duplicate is true for a duplicate and false for an orphan.
	Duplicate bool
	// FirstSeen is the time of the first pass that found the orphan or duplicate.
	FirstSeen time.Time
	// Attempts counts how often a pass has tried to remove the orphan.
	Attempts int
	// IsReported is true if the metric and an event have reported the orphan or duplicate.
	IsReported bool
	// IsBlocked is true if most instances, including this one, lost their Machines at once. The field stays true for
	// the orphan, even if new Machines with new instances make the orphans a minority.
	IsBlocked bool
	// IsWarned is true if an event has told administrators to confirm the removal.
	IsWarned bool
	// Drain contains the progress of draining the orphan's Node.
	Drain Drain
}

// Drain records when and for which Node of an orphan a drain began.
type Drain struct {
	// Node and UID are the name and the UID of the Node. These fields are empty before a drain begins.
	Node string
	UID  types.UID
	// StartTime is the start time of the drain. Epoch identifies the period between two outages of the target
	// cluster.
	StartTime time.Time
	Epoch     uint64
}

// Outcome is the decision about an instance or about leftovers.
type Outcome string

const (
	// OutcomeDelete means that the instance or the leftovers are removed now.
	OutcomeDelete Outcome = "Delete"
	// OutcomeReport means that the instance or the leftovers would be removed now, but Rules.ReportOnly is true.
	OutcomeReport Outcome = "Report"
	// OutcomeDuplicate means that the instance belongs to a Machine that has recorded another instance. The instance
	// is kept, because only the Machine's controller knows which of the two instances is in use.
	OutcomeDuplicate Outcome = "Duplicate"

	// OutcomeMostOrphaned means that most instances lost their Machines at once. An administrator must confirm their
	// removal.
	OutcomeMostOrphaned Outcome = "MostOrphaned"
	// OutcomeNodeReady means that the instance's Node is Ready. An administrator must confirm the removal.
	OutcomeNodeReady Outcome = "NodeReady"

	// All outcomes below keep the instance.

	// OutcomeOtherInstallation means that the tags belong to another installation or shard.
	OutcomeOtherInstallation Outcome = "OtherInstallation"
	// OutcomeUntagged means that the tags do not identify a Machine.
	OutcomeUntagged Outcome = "Untagged"
	// OutcomeOwned means that the instance has a Machine, or that the leftovers belong to a machine with an instance.
	OutcomeOwned Outcome = "Owned"
	// OutcomeUndetermined means that the cache has no Machine for the instance or leftovers, and the Machines could
	// not be listed at the API server.
	OutcomeUndetermined Outcome = "Undetermined"
	// OutcomeUnconfirmed means that the previous pass did not see this orphan or duplicate.
	OutcomeUnconfirmed Outcome = "Unconfirmed"
	// OutcomeTooYoung means that the orphan may just have been created.
	OutcomeTooYoung Outcome = "TooYoung"
	// OutcomeAfterOutage means that the last outage ended less than a period ago.
	OutcomeAfterOutage Outcome = "AfterOutage"
	// OutcomeOverLimit means that this pass already removes Rules.MaxDeletes orphans.
	OutcomeOverLimit Outcome = "OverLimit"
	// OutcomeForceDeleted is the outcome of ledger entries for force-deleted Machines whose resources were not found
	// in a list yet.
	OutcomeForceDeleted Outcome = "ForceDeleted"
)

// Decision is the decision about one instance, or about the leftovers of one machine.
type Decision struct {
	// ID is the provider ID of the instance, or the ID of Leftovers.
	ID string
	// Instance holds all fields that the cloud reports about the instance. For leftovers, it contains only the tags and
	// the launch time.
	Instance provider.Instance
	// Parts are the IDs of the leftovers, or empty for an instance.
	Parts   []string
	Outcome Outcome
}

// Plan is the result of Decide.
type Plan struct {
	// Decisions contains one Decision for each instance, and one Decision for the leftovers of each machine. Removals
	// come first, ordered by the number of attempts and the first observation. Decisions without a removal are ordered
	// by ID.
	Decisions []Decision
	// Observations and Instances are inputs of the next pass. Instances maps each namespace to the number of this
	// installation's instances. The key "" has the number of all instances.
	Observations Observations
	Instances    map[string]int
}

// Decide finds the orphans and decides which ones to remove. Decide removes an instance only under all of these
// conditions:
//
//   - The tags have this installation's cluster ID, the UID of a Machine, and one of this installation's namespaces.
//   - The Machine is neither in the cache nor at the API server, and no other Machine has recorded the instance.
//   - The previous pass found the same instance without a Machine.
//   - The instance is at least as old as MinAge.
//
// Machines are listed after instances. A Machine is created before its instance and deleted after its instance. So if
// the later list contains no Machine for a listed instance, the Machine was deleted. Leftovers are removed only if no
// listed instance has the same Machine in its tags.
//
// Two signs suggest that a Machine was lost while its instance is in use: most instances lost their Machines at once,
// or the Node is Ready. In these cases, an administrator must confirm the removal.
func Decide(s State) Plan {
	p := Plan{Observations: Observations{}, Instances: map[string]int{}}
	subjects, outcomes := s.subjects()
	var due []Decision
	most := s.mostOrphaned(subjects, outcomes, p.Instances)
	for i, d := range subjects {
		in := &d.Instance
		outcome := outcomes[i]
		if outcome == OutcomeDelete || outcome == OutcomeDuplicate {
			observation, again := s.PreviousObservations[d.ID]
			if !again || observation.Machine != in.MachineUID || observation.Duplicate != (outcome == OutcomeDuplicate) {
				observation, again = Observation{Machine: in.MachineUID, Duplicate: outcome == OutcomeDuplicate,
					FirstSeen: latest(s.Now, s.ListTime)}, false
			}
			observation.IsBlocked = outcome == OutcomeDelete && !s.deletedByForce(in) &&
				(observation.IsBlocked || s.IsBlocked || most[everywhere] || most[namespaceOf(in)])
			p.Observations[d.ID] = observation
			switch {
			case !again:
				outcome = OutcomeUnconfirmed
			case outcome == OutcomeDelete:
				outcome = s.orphanOutcome(d.ID, in, observation)
			}
		}
		d.Outcome = outcome
		if outcome == OutcomeDelete {
			due = append(due, d)
			continue
		}
		p.Decisions = append(p.Decisions, d)
	}
	slices.SortFunc(due, func(a, b Decision) int {
		x, y := p.Observations[a.ID], p.Observations[b.ID]
		return cmp.Or(cmp.Compare(x.Attempts, y.Attempts), x.FirstSeen.Compare(y.FirstSeen), byID(a, b))
	})
	for i := max(s.MaxDeletes, 0); i < len(due); i++ {
		due[i].Outcome = OutcomeOverLimit
	}
	slices.SortFunc(p.Decisions, byID)
	p.Decisions = append(due, p.Decisions...)
	return p
}

func (s *State) subjects() (subjects []Decision, outcomes []Outcome) {
	claimed := map[string]bool{}
	for _, id := range s.ProviderIDs {
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

// classify returns OutcomeDelete for an instance or leftovers without an owner. Otherwise, the method returns the
// reason why the instance or the leftovers are kept. The map claimed contains the provider IDs that Machines have
// recorded. The map listed contains the UIDs of Machines with a listed instance.
func (s *State) classify(d *Decision, claimed map[string]bool, listed map[types.UID]bool) Outcome {
	in := &d.Instance
	namespace, name, named := strings.Cut(in.MachineKey, "/")
	switch {
	case s.ClusterID == "" || in.ClusterID != s.ClusterID:
		return OutcomeOtherInstallation
	case d.ID == "" || in.MachineUID == "" || !named || namespace == "" || name == "" || strings.Contains(name, "/"):
		return OutcomeUntagged
	case s.Namespace != "" && namespace != s.Namespace, !s.Shard.Owns(namespace):
		return OutcomeOtherInstallation
	case claimed[d.ID]:
		return OutcomeOwned
	}
	recorded, cached := s.ProviderIDs[in.MachineUID]
	switch {
	case len(d.Parts) > 0 && (cached || listed[in.MachineUID]):
		return OutcomeOwned
	case cached && recorded != "":
		return OutcomeDuplicate
	case cached, s.LiveMachines[in.MachineUID]:
		return OutcomeOwned
	case s.LiveMachines == nil:
		return OutcomeUndetermined
	case s.OtherShardIDs[d.ID]:
		return OutcomeOwned
	}
	return OutcomeDelete
}

const (
	// minMostOrphaned is the minimum number of orphans that counts as most instances. An interrupted creation or a
	// removed finalizer leaves one or two orphans. If all three instances of a small cluster are orphans, the cluster
	// may have lost all its Machines.
	minMostOrphaned = 3
	// mostOrphanedDivisor defines when most instances are orphans: if the number of orphans is at least the number of
	// instances divided by mostOrphanedDivisor. The divisor is 2 because a restored Machine gets a new instance. If all
	// Machines were lost and created again, half of the instances are orphans.
	mostOrphanedDivisor = 2
	everywhere          = ""
)

// mostOrphaned returns the namespaces in which most instances have no Machine. If most instances of all namespaces
// together have no Machine, the result also contains the key "". The map instances gets the number of instances in each
// namespace.
//
// An orphan counts only if the previous pass found it too, because a list may contain instances that were removed on
// purpose. The orphans are compared with the number of instances in this pass or in the previous pass, whichever is
// lower. Terminating instances and remnants of force-deleted Machines do not count.
func (s *State) mostOrphaned(subjects []Decision, outcomes []Outcome, instances map[string]int) map[string]bool {
	orphaned := map[string]int{}
	for i := range subjects {
		in := &subjects[i].Instance
		if len(subjects[i].Parts) > 0 || in.State == provider.StateTerminating || s.deletedByForce(in) {
			continue
		}
		switch outcomes[i] {
		case OutcomeOwned, OutcomeDuplicate:
		case OutcomeDelete:
			if before, again := s.PreviousObservations[subjects[i].ID]; again &&
				before.Machine == in.MachineUID && !before.Duplicate {
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
		if before, known := s.PreviousInstances[namespace]; known {
			of = min(of, before)
		}
		most[namespace] = n >= minMostOrphaned && n*mostOrphanedDivisor >= of
	}
	return most
}

func namespaceOf(in *provider.Instance) string { return namespaceIn(in.MachineKey) }

func namespaceIn(key string) string {
	namespace, _, _ := strings.Cut(key, "/")
	return namespace
}

func (s *State) orphanOutcome(id string, in *provider.Instance, seen Observation) Outcome {
	switch {
	case seen.IsBlocked && !s.ConfirmedIDs[id] && !s.ReportOnly:
		// This check comes before the checks of the age and of outages, because the outcome OutcomeMostOrphaned is
		// stored at once in the condition of a class. Without the condition, a new process would not know that the
		// removal is blocked.
		return OutcomeMostOrphaned
	case !s.isOld(in, seen.FirstSeen, s.Now):
		return OutcomeTooYoung
	case s.StableSince.IsZero() || s.Now.Sub(s.StableSince) < s.Period:
		return OutcomeAfterOutage
	case s.ReportOnly:
		return OutcomeReport
	case s.ConfirmedIDs[id]:
		return OutcomeDelete
	case s.NodeReady[id] != "":
		return OutcomeNodeReady
	}
	return OutcomeDelete
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// clockDifference is the maximum difference between the clocks of the provider and this process.
const clockDifference = 15 * time.Minute

// isOld reports whether an instance is older than MinAge. Both its launch time and its first observation must be at
// least MinAge ago. If the launch time is at least MinAge + clockDifference ago, the time of the first observation does
// not matter. Without a launch time, only the time of the first observation matters.
func (r *Rules) isOld(in *provider.Instance, first, now time.Time) bool {
	known := now.Sub(first) >= r.MinAge
	if in.LaunchTime.IsZero() {
		return known
	}
	reported := now.Sub(in.LaunchTime)
	return reported >= r.MinAge+clockDifference || reported >= r.MinAge && known
}

// Confirm compares an instance that was just read with the instance that the plan removes. It returns true if both are
// the same instance and may be removed.
func Confirm(r Rules, planned, read *provider.Instance) bool {
	return read != nil && r.ClusterID != "" &&
		read.ProviderID == planned.ProviderID &&
		read.ClusterID == r.ClusterID &&
		read.MachineUID == planned.MachineUID &&
		read.MachineKey == planned.MachineKey &&
		(read.LaunchTime.IsZero() || read.LaunchTime.Equal(planned.LaunchTime))
}

// needsMachineList reports whether some instances cannot be classified without a live list of Machines.
func (s *State) needsMachineList() bool {
	return slices.ContainsFunc(Decide(*s).Decisions, func(d Decision) bool { return d.Outcome == OutcomeUndetermined })
}

func (s *State) orphans() (all []Decision) {
	subjects, outcomes := s.subjects()
	for i := range subjects {
		if outcomes[i] == OutcomeDelete {
			all = append(all, subjects[i])
		}
	}
	return all
}

func byID(a, b Decision) int { return cmp.Compare(a.ID, b.ID) }
