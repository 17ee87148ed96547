package drain

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestSecondControllerSharesTheMetrics(t *testing.T) {
	registry := prometheus.NewRegistry()
	first, second := newMetrics(), newMetrics()
	for _, m := range []*metrics{&first, &second} {
		if err := m.register(registry); err != nil {
			t.Fatal(err)
		}
		m.count(blocked)
	}
	const want = `
		# HELP machinist_evictions_total Attempts to evict a pod, or to delete it near the deadline of a drain, by result.
		# TYPE machinist_evictions_total counter
		machinist_evictions_total{result="blocked"} 2
		machinist_evictions_total{result="deleted"} 0
		machinist_evictions_total{result="error"} 0
		machinist_evictions_total{result="evicted"} 0
		machinist_evictions_total{result="gone"} 0
		machinist_evictions_total{result="throttled"} 0
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}
