package main

import (
	"fmt"
	"slices"

	"machinist.dev/machinist/test/incidents"
	"machinist.dev/machinist/test/simulation"
)

// reportIncidents prints how many of the incidents are played by scenarios that were run. The others are tests.
func reportIncidents(scenarios []simulation.Scenario) {
	played, all := 0, incidents.All()
	for _, incident := range all {
		if slices.ContainsFunc(incident.Proofs, func(p incidents.Proof) bool {
			return slices.ContainsFunc(scenarios, func(s simulation.Scenario) bool { return s.Name == p.Scenario })
		}) {
			played++
		}
	}
	fmt.Printf("incidents: %d of %d are played by these %d scenarios; the others are tests\n", played, len(all),
		len(scenarios))
}
