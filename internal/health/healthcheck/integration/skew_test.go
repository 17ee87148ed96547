package integration

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/internal/health/healthcheck"
)

// The manager's clock differs by ten minutes from that of the controllers that update Nodes.
//
// Rule: health-clock-is-own.
func TestSkewedClockDoesNotChangeTimeouts(t *testing.T) {
	for name, skew := range map[string]time.Duration{"ten minutes ahead": 10 * time.Minute,
		"ten minutes behind": -10 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			policy, err := (&healthcheck.BuiltIn{Timeout: time.Minute, MaxUnhealthy: "40%", MeltdownThreshold: 55}).Policy()
			b.must(err)
			b.options.BuiltIn = policy
			b.restart()
			victim := b.machine("a")
			for _, other := range []string{"b", "c", "d"} {
				b.machine(other)
			}
			b.stable = b.clock.Now().Add(-time.Hour)
			b.pass()
			b.reportAt(victim, corev1.NodeReady, corev1.ConditionUnknown, b.clock.Now().Add(-skew))
			b.pass()
			b.clock.Step(59 * time.Second)
			if reconcile := b.pass(); (b.mark(victim) != nil) || reconcile > time.Second {
				t.Fatalf("marked after 59 seconds: %t, and checks again after %s", b.mark(victim) != nil, reconcile)
			}
			b.clock.Step(time.Second)
			b.pass()
			if b.mark(victim) == nil {
				t.Error("not marked after a minute")
			}
		})
	}
}
