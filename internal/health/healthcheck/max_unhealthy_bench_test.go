package healthcheck

import "testing"

// BenchmarkDecide5000Machines measures a pass over a large fleet without the reads.
func BenchmarkDecide5000Machines(b *testing.B) {
	subjects := fleet(5000, 50, silent(20))
	for b.Loop() {
		s := situation(60)
		s.Meltdown = DetectMeltdown(subjects, DefaultMeltdownThreshold)
		if j := Decide(policy(), subjects, s); len(j.DesiredConditions) != 50 {
			b.Fatalf("%d desired conditions", len(j.DesiredConditions))
		}
	}
}
