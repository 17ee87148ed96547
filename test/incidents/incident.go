// Package incidents is what has gone wrong for the users of systems that keep machines, from their public trackers, and
// for each the run of Machinist in which the same cause occurs.
//
// docs/incidents.md is generated from it.
package incidents

import "slices"

// Incident is something that users of a system reported.
type Incident struct {
	// Reference is the issue or pull request about it, as in "gardener/machine-controller-manager#123".
	Reference string
	Title     string
	Theme     Theme
	// Happened is what users reported, in one paragraph.
	Happened string
	// Here is what Machinist does in that case.
	Here string
	// Proofs are the runs in which the cause occurs, and which fail if Machinist does something else.
	Proofs []Proof
}

// Proof is a run. Exactly one of its fields is set.
type Proof struct {
	// Scenario is one of the deterministic world, by name.
	Scenario string
	// Test is the folder of a package, a dot and the name of a test: "test/e2e.TestX".
	Test string
}

// Theme is what incidents have in common.
type Theme string

// The themes.
const (
	DeletedFleets   Theme = "Deleted fleets"
	LeakedInstances Theme = "Leaked instances"
	StuckDrains     Theme = "Stuck drains"
	StuckDeletions  Theme = "Stuck deletions"
	Stampedes       Theme = "Runaway creation and replacement"
	StaleCaches     Theme = "Stale caches"
	ClocksAndZones  Theme = "Clocks and time zones"
	Webhooks        Theme = "Webhooks"
	Certificates    Theme = "Certificates and tokens"
	Quota           Theme = "Quotas and limits"
	Nodes           Theme = "Nodes"
	Rollouts        Theme = "Rollouts"
	Upgrades        Theme = "Upgrades and removal"
	BadInput        Theme = "Bad input"
)

// Themes are all that there are, in the order of the page.
func Themes() []Theme {
	return []Theme{DeletedFleets, LeakedInstances, StuckDrains, StuckDeletions, Stampedes, StaleCaches, ClocksAndZones,
		Webhooks, Certificates, Quota, Nodes, Rollouts, Upgrades, BadInput}
}

// All returns all incidents, project by project.
func All() []Incident {
	return slices.Concat(gardener(), kubermatic(), karpenter(), clusterAPI(), openshift())
}

// scenarios and tests make proofs of names.
func scenarios(names ...string) (out []Proof) {
	for _, name := range names {
		out = append(out, Proof{Scenario: name})
	}
	return out
}

func tests(names ...string) (out []Proof) {
	for _, name := range names {
		out = append(out, Proof{Test: name})
	}
	return out
}
