// Package incidents contains incidents from the public issue trackers of systems that manage machines. For each, it
// names the tests of Machinist in which the same cause occurs.
//
// docs/incidents.md and the pages in docs/incidents are generated from this package.
package incidents

import "slices"

// Incident is a problem that users of another system reported.
type Incident struct {
	// Reference is the issue or pull request, such as "gardener/machine-controller-manager#123".
	Reference string
	Title     string
	Theme     Theme
	// Happened describes what users reported, in one paragraph.
	Happened string
	// Here describes what Machinist does in this case.
	Here string
	// Proofs are the runs in which the cause occurs. They fail if Machinist does not do what Here describes.
	Proofs []Proof
}

// Proof is a scenario or a test. Exactly one of its fields is set.
type Proof struct {
	// Scenario is the name of a scenario of the simulation.
	Scenario string
	// Test is the folder of a package, a dot and the name of a test, such as "test/e2e.TestX".
	Test string
}

// Theme is a group of incidents, which has a page of its own.
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

// Themes returns all themes in the order of the list.
func Themes() []Theme {
	return []Theme{DeletedFleets, LeakedInstances, StuckDrains, StuckDeletions, Stampedes, StaleCaches, ClocksAndZones,
		Webhooks, Certificates, Quota, Nodes, Rollouts, Upgrades, BadInput}
}

// All returns all incidents, grouped by project.
func All() []Incident {
	return slices.Concat(gardener(), kubermatic(), karpenter(), clusterAPI(), openshift())
}

// scenarios returns proofs for the names of scenarios.
func scenarios(names ...string) (out []Proof) {
	for _, name := range names {
		out = append(out, Proof{Scenario: name})
	}
	return out
}

// tests returns proofs for tests.
func tests(names ...string) (out []Proof) {
	for _, name := range names {
		out = append(out, Proof{Test: name})
	}
	return out
}
