package simulation

import "testing"

// TestIncidentsDoNotHappen runs scenarios in which Machinist once failed in the same way as other systems.
//
// Rule: adopt-only-when-missing.
// Rule: orphaned-set-adopted.
// Rule: released-count-towards-ceiling.
// Rule: serving-certificate-for-known-addresses.
func TestIncidentsDoNotHappen(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string]int{"incident-restored-without-owners": 60, "incident-policy-relabels": 2,
		"incident-addresses-come-late": 4} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var scenarios []Scenario
			for _, s := range Scenarios() {
				if s.Name == name {
					scenarios = append(scenarios, s)
				}
			}
			report, err := Sweep{Scenarios: scenarios, Runs: runs, Seed: 1, Workers: 1}.Run(Scheme())
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range report.Failures {
				t.Errorf("scenario %s, %s", f.Scenario, f)
			}
			if int(report.Runs) != runs {
				t.Errorf("got %d runs, want %d", report.Runs, runs)
			}
		})
	}
}
