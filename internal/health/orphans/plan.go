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

// Rules are what the user decides about orphans.
type Rules struct {
	// ClusterID is what marks the instances of this installation.
	ClusterID string
	// Namespace is the only one of this installation; empty means all.
	Namespace string
	// Shard is the part of the namespaces whose instances are judged; the zero value is all.
	Shard sharding.Shard
	// Period is the time between two passes. For as long, nothing is removed after an outage.
	Period time.Duration
	// MinAge is the age from which an instance can be an orphan.
	MinAge time.Duration
	// MaxDeletes is how many are removed in one pass.
	MaxDeletes int
	// ReportOnly leaves all of them where they are.
	ReportOnly bool
}

// State is what one pass knows.
type State struct {
	Rules
	Now time.Time
	// Listed is when the last list was read: what is seen for the first time may be no older. Default Now.
	Listed time.Time
	// Stable is since when this process leads and both clusters answer; zero if it is not so now.
	Stable time.Time
	// Instances are those in complete lists, each once.
	Instances []provider.Instance
	// Leftovers are the parts in the same lists that belong to no instance.
	Leftovers []Leftovers
	// Recorded are the provider IDs that Machines had in the cache before the instances were listed, by the UID of the
	// Machine. It is empty for one that has none.
	Recorded map[types.UID]string
	// Live are the UIDs in a consistent and unfiltered list of Machines that the API server gave after the instances were
	// listed; nil if there is none.
	Live map[types.UID]bool
	// Elsewhere has the provider IDs that Machines of other shards had recorded in that list.
	Elsewhere map[string]bool
	// Before is what the pass before has left, and InstancesBefore its Plan's Instances; nil if there was none.
	Before          Observations
	InstancesBefore map[string]int

	// NodeReady has the names of Ready Nodes, by the IDs of the instances without a Machine that they belong to.
	NodeReady map[string]string
	// Blocked says that a class or, right after a restart, the Ledger reports MostInstancesOrphaned.
	Blocked bool
	// Confirmed has the IDs of what was found with a class by which a person lets orphans be removed now, and of what
	// Machines left that were deleted by force.
	Confirmed map[string]bool
	// ForceDeleted are the Machines that were deleted by force although something of them may remain.
	ForceDeleted forceDeleted
}

// Observations are the orphans, and the duplicates, of one pass by the IDs of their decisions. What a pass did not
// see, or could not judge, is not among them.
type Observations map[string]Observation

// Observation is what is kept about one.
type Observation struct {
	// Machine is the UID in its tags. Another one makes it another instance.
	Machine types.UID
	// Duplicate tells a duplicate from an orphan.
	Duplicate bool
	// First is when it was first seen.
	First time.Time
	// Attempts counts the calls that should remove it.
	Attempts int
	// Reported says that it was counted and made known.
	Reported bool
	// Blocked says that it was one of most instances when they lost their Machines. Machines that are created in their
	// place make it one of few, and change nothing about that.
	Blocked bool
	// Warned says that an event reported that it is not removed until a person confirms.
	Warned bool
	// Drain is the drain of its Node, if one began.
	Drain Drain
}

// Drain is a drain of the Node of an instance without a Machine.
type Drain struct {
	// Node and UID of the Node; empty if no drain began.
	Node string
	UID  types.UID
	// Began is when the drain began, in a time without an outage of the target cluster, which Epoch tells.
	Began time.Time
	Epoch uint64
}

// Outcome is what is made of an instance, and why.
type Outcome string

const (
	// Delete is for what is removed now.
	Delete Outcome = "Delete"
	// Report is for what would be removed if only reports were not asked for.
	Report Outcome = "Report"
	// Duplicate is for an instance of a Machine that has another one. It is left alone: only the Machine's own
	// controller can know what is going on.
	Duplicate Outcome = "Duplicate"

	// MostOrphaned is for one of so many that lost their Machines at once that there is none removed until a person
	// confirms.
	MostOrphaned Outcome = "MostOrphaned"
	// NodeReady is for one whose Node is Ready. It is not removed until a person confirms.
	NodeReady Outcome = "NodeReady"

	// The other ones leave it where it is.

	// OtherInstallation is for an instance of another installation, or of another shard, by its cluster id or its
	// namespace.
	OtherInstallation Outcome = "OtherInstallation"
	// Untagged is for one that does not say whose it is.
	Untagged Outcome = "Untagged"
	// Owned is for one that has a Machine, and for parts whose machine has an instance.
	Owned Outcome = "Owned"
	// Undetermined is for one without a Machine in the cache, when the API server could not be asked.
	Undetermined Outcome = "Undetermined"
	// Unconfirmed is for an orphan, or a duplicate, that the pass before did not see.
	Unconfirmed Outcome = "Unconfirmed"
	// TooYoung is for one that may just have been made.
	TooYoung Outcome = "TooYoung"
	// AfterOutage is for one that is seen too soon after an outage.
	AfterOutage Outcome = "AfterOutage"
	// OverLimit is for those that are too many for one pass.
	OverLimit Outcome = "OverLimit"
	// ForceDeleted is for what a Machine that was deleted by force may have left, and no list has shown yet.
	ForceDeleted Outcome = "ForceDeleted"
)

// Decision is about one instance, or about the parts of one machine that belong to no instance.
type Decision struct {
	// ID is the instance's provider ID, or that of Leftovers.
	ID string
	// Instance has, where Parts are not empty, only what their tags say and when they were made.
	Instance provider.Instance
	// Parts are the names of leftovers; empty for an instance.
	Parts   []string
	Outcome Outcome
}

// Plan is what follows from a State.
type Plan struct {
	// Decisions are about all instances and leftovers, in the order of their IDs, but for those to be removed: of them,
	// who was tried least often and was seen first is first.
	Decisions []Decision
	// Observations are for the next pass, and so is Instances: how many there are that carry our tags, by namespace; ""
	// has all.
	Observations Observations
	Instances    map[string]int
}

// Decide tells orphans from what only looks like them. It removes an instance only if it carries our cluster id, the
// UID of a Machine and a namespace of ours; if that Machine is neither at the API server nor in the cache, and no
// other one has recorded the instance; if the same was so in the pass before; and if it is old enough. A Machine's
// absence counts, since the list of Machines was taken after that of the instances: nothing is made for a Machine
// that is not there yet, and a Machine does not go before its instance. For parts without an instance the same holds,
// and there must be no instance of their machine in the lists.
//
// What shows that the bookkeeping was lost, and not the instance, has it wait for a person: most instances lost their
// Machines at once, or its Node is Ready.
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
				outcome = s.when(d.ID, in, observation)
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

// subjects returns what is decided about, and whose each is.
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
		outcomes[i] = s.whose(&subjects[i], claimed, listed)
	}
	return subjects, outcomes
}

// whose tells whose an instance is, or parts are: Delete if it has no owner. listed are the machines of the listed
// instances.
func (s *State) whose(d *Decision, claimed map[string]bool, listed map[types.UID]bool) Outcome {
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
	// leastForMost is how many orphans at once may be too many: one or two are what a cut-off creation or a removed
	// finalizer leaves behind, also where there are few instances or no others. Three of three machines may be a whole
	// cluster.
	leastForMost = 3
	// mostOrphanedDivisor makes half of the instances most of them: what replaced each orphan must not hide that all
	// were lost.
	mostOrphanedDivisor = 2
	// everywhere is the name of no namespace: that of all together.
	everywhere = ""
)

// mostOrphaned returns the namespaces in which most instances have no Machine, everywhere if that is so of all
// together. It counts the orphans that the pass before saw too, since a list may show for a while what Machines removed
// in order, and compares them with the instances of both passes, whichever were fewer. What is being terminated does
// not count, nor what Machines left that were deleted by force. instances takes the numbers of this pass.
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
		most[namespace] = n >= leastForMost && n*mostOrphanedDivisor >= of
	}
	return most
}

func namespaceOf(in *provider.Instance) string {
	namespace, _, _ := strings.Cut(in.MachineKey, "/")
	return namespace
}

// when shows whether an orphan's time has come.
func (s *State) when(id string, in *provider.Instance, seen Observation) Outcome {
	switch {
	case seen.Blocked && !s.Confirmed[id] && !s.ReportOnly:
		// Not only when its time has come: until the class says it, a restart forgets that most were lost.
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

// clockDifference is by how much the provider's clock may differ from ours.
const clockDifference = 15 * time.Minute

// isOld reports whether an instance that was first seen at a time is older than MinAge. The provider's time alone
// proves that only if it says more than its clock may be wrong.
func (r *Rules) isOld(in *provider.Instance, first, now time.Time) bool {
	known := now.Sub(first) >= r.MinAge
	if in.LaunchTime.IsZero() {
		return known
	}
	reported := now.Sub(in.LaunchTime)
	return reported >= r.MinAge+clockDifference || reported >= r.MinAge && known
}

// Confirm reports whether an instance is, as it was read a moment ago, still what the plan wants to remove.
func Confirm(r Rules, planned, read *provider.Instance) bool {
	return read != nil && r.ClusterID != "" &&
		read.ProviderID == planned.ProviderID &&
		read.ClusterID == r.ClusterID &&
		read.MachineUID == planned.MachineUID &&
		read.MachineKey == planned.MachineKey &&
		(read.LaunchTime.IsZero() || read.LaunchTime.Equal(planned.LaunchTime))
}

// candidates reports whether the cache alone cannot tell whose all instances are.
func (s *State) candidates() bool {
	return slices.ContainsFunc(Decide(*s).Decisions, func(d Decision) bool { return d.Outcome == Undetermined })
}

// orphans returns what has no Machine, whatever is decided about it.
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
