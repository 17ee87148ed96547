package drain

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// result is the result of an attempt to evict or to delete a pod. The result is a label value of the metric.
type result string

const (
	evicted   result = "evicted"
	deleted   result = "deleted"   // near the deadline of the drain
	blocked   result = "blocked"   // by a PodDisruptionBudget
	throttled result = "throttled" // by the API server, which names the time to wait
	gone      result = "gone"      // the pod no longer exists
	failed    result = "error"
)

type metrics struct {
	evictions *prometheus.CounterVec
}

func newMetrics() metrics {
	m := metrics{evictions: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_evictions_total",
		Help: "Attempts to evict a pod, or to delete it near the deadline of a drain, by result.",
	}, []string{"result"})}
	for _, r := range []result{evicted, deleted, blocked, throttled, gone, failed} {
		m.evictions.WithLabelValues(string(r))
	}
	return m
}

// register registers the metrics. If the process has a second controller, both use the metrics of the first one.
func (m *metrics) register(registerer prometheus.Registerer) error {
	err := registerer.Register(m.evictions)
	var already prometheus.AlreadyRegisteredError
	if errors.As(err, &already) {
		if existing, ok := already.ExistingCollector.(*prometheus.CounterVec); ok {
			m.evictions = existing
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("register the metric machinist_evictions_total: %w", err)
	}
	return nil
}

func (m *metrics) count(r result) {
	m.evictions.WithLabelValues(string(r)).Inc()
}
