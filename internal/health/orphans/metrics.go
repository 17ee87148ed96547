package orphans

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	actionDeleted   = "deleted"
	actionFailed    = "failed"
	actionReported  = "reported"
	actionDuplicate = "duplicate"
)

// Metrics counts the orphans that were found and removed, and those whose removal needs a confirmation. A nil *Metrics
// does nothing.
type Metrics struct {
	orphans *prometheus.CounterVec
	blocked *prometheus.GaugeVec
}

// NewMetrics creates and registers the metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{orphans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_orphans_total",
		Help: "Instances and leftover parts without a Machine (orphans), and second instances of a Machine. The action is what Machinist did with the instance or part.",
	}, []string{"action"}), blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_orphans_blocked",
		Help: "Instances without a Machine whose removal an administrator must confirm, by the reason of the condition OrphanRemovalBlocked.",
	}, []string{"reason"})}
	if err := errors.Join(registerer.Register(m.orphans), registerer.Register(m.blocked)); err != nil {
		return nil, fmt.Errorf("register the metrics of orphans: %w", err)
	}
	m.setBlocked(nil)
	// Initialize each counter with zero, so that Prometheus scrapes it before the first orphan. Otherwise the
	// Prometheus function increase ignores the first orphan.
	for _, action := range []string{actionDeleted, actionFailed, actionReported, actionDuplicate} {
		m.orphans.WithLabelValues(action)
	}
	return m, nil
}

func (m *Metrics) setBlocked(n map[Outcome]int) {
	if m == nil {
		return
	}
	for outcome, reason := range blockedReasons {
		m.blocked.WithLabelValues(reason).Set(float64(n[outcome]))
	}
}

func (m *Metrics) count(action string) {
	if m != nil {
		m.orphans.WithLabelValues(action).Inc()
	}
}
