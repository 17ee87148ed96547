// Package incidents describes incidents from the public issue trackers of systems that manage machines. For each
// incident, it lists the tests of Machinist that reproduce the cause.
//
// The command hack/incidents generates docs/incidents.md and the pages in docs/incidents from this package.
package incidents

import "slices"

// Incident is a problem that users of another system reported.
type Incident struct {
	// Reference identifies the issue or pull request, such as "gardener/machine-controller-manager#123".
	Reference string
	Title     string
	Theme     Theme
	// Report contains the incident as users reported it, in one paragraph.
	Report string
	// Behavior contains the behavior of Machinist in the same situation, in one paragraph.
	Behavior string
	// Proofs are the tests and scenarios that reproduce the cause. The tests and scenarios fail if Machinist does not
	// behave as described in Behavior.
	Proofs []Proof
}

// Proof refers to a scenario or a test that reproduces an incident. Exactly one of its two fields is set.
type Proof struct {
	// Scenario is the name of a scenario in the simulation.
	Scenario string
	// Test identifies a test by the folder of its package and its name: "test/e2e.TestX".
	Test string
}

// Theme is a group of incidents with its own page in the documentation.
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

// Themes returns all themes, in the order in which the documentation lists them.
func Themes() []Theme {
	return []Theme{DeletedFleets, LeakedInstances, StuckDrains, StuckDeletions, Stampedes, StaleCaches, ClocksAndZones,
		Webhooks, Certificates, Quota, Nodes, Rollouts, Upgrades, BadInput}
}

// Incidents returns all incidents. The incidents of each project are adjacent.
func Incidents() []Incident {
	return slices.Concat(gardener(), kubermatic(), karpenter(), clusterAPI(), openshift())
}

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
