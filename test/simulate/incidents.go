package main

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/test/incidents"
	"machinist.dev/machinist/test/simulation"
)

// reportIncidents prints how many of the known incidents the scenarios of this run cover. Tests cover the others.
func reportIncidents(scenarios []simulation.Scenario) {
	covered, all := 0, incidents.Incidents()
	for _, incident := range all {
		if slices.ContainsFunc(incident.Proofs, func(p incidents.Proof) bool {
			return slices.ContainsFunc(scenarios, func(s simulation.Scenario) bool { return s.Name == p.Scenario })
		}) {
			covered++
		}
	}
	fmt.Printf("incidents: %d of %d are covered by these %d scenarios, the others by tests\n", covered, len(all),
		len(scenarios))
}
