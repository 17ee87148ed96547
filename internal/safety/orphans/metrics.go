package orphans

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// What is counted of an orphan.
const (
	actionDeleted  = "deleted"
	actionFailed   = "failed"
	actionReported = "reported"
	actionStray    = "stray"
)

// Metrics count what is done about orphans. A nil *Metrics counts nothing.
type Metrics struct{ orphans *prometheus.CounterVec }

// NewMetrics makes and registers the metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{orphans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_orphans_total",
		Help: "Instances of this installation, or parts without an instance, without a Machine, and instances of a Machine that has another one, by what was done about them.",
	}, []string{"action"})}
	if err := registerer.Register(m.orphans); err != nil {
		return nil, fmt.Errorf("register the metrics of orphans: %w", err)
	}
	return m, nil
}

func (m *Metrics) count(action string) {
	if m != nil {
		m.orphans.WithLabelValues(action).Inc()
	}
}
