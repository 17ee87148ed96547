package healthcheck

import "testing"

// What a pass over a large fleet costs, apart from reading it.
func BenchmarkJudging5000Machines(b *testing.B) {
	subjects := fleet(5000, 50, silent(20))
	for b.Loop() {
		s := at(60)
		s.Meltdown = Melt(subjects, DefaultMeltdownThreshold)
		if j := Judge(policy(), subjects, s); len(j.Wishes) != 50 {
			b.Fatalf("%d wishes", len(j.Wishes))
		}
	}
}
