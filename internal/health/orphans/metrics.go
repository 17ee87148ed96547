package orphans

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// What is counted of an orphan.
const (
	actionDeleted   = "deleted"
	actionFailed    = "failed"
	actionReported  = "reported"
	actionDuplicate = "duplicate"
)

// Metrics count what is done about orphans. A nil *Metrics counts nothing.
type Metrics struct {
	orphans *prometheus.CounterVec
	blocked *prometheus.GaugeVec
}

// NewMetrics makes and registers the metrics.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{orphans: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_orphans_total",
		Help: "Instances of this installation, or parts without an instance, without a Machine, and instances of a Machine that has another one, by what was done about them.",
	}, []string{"action"}), blocked: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_orphans_blocked",
		Help: "Instances without a Machine that are not removed until a person confirms, by the reason of the condition OrphanRemovalBlocked.",
	}, []string{"reason"})}
	if err := errors.Join(registerer.Register(m.orphans), registerer.Register(m.blocked)); err != nil {
		return nil, fmt.Errorf("register the metrics of orphans: %w", err)
	}
	m.setBlocked(nil)
	// The first one counts as an increase only if there was a zero before it.
	for _, action := range []string{actionDeleted, actionFailed, actionReported, actionDuplicate} {
		m.orphans.WithLabelValues(action)
	}
	return m, nil
}

// setBlocked reports how many orphans each decision keeps.
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
