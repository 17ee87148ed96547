package machinedeployment

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics of the controller. A nil *Metrics counts nothing.
type Metrics struct {
	stuck *prometheus.GaugeVec
}

// NewMetrics registers the metrics of the controller.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_rollout_stuck",
		Help: "1 while the rollout of a MachineDeployment (namespace/name) cannot go on, by the reason of its condition Progressing.",
	}, []string{"deployment", "reason"})}
	if err := registerer.Register(m.stuck); err != nil {
		return nil, fmt.Errorf("register machinist_rollout_stuck: %w", err)
	}
	return m, nil
}

// stuckFor replaces the reason why a deployment's rollout is stuck; an empty reason means that it is not.
func (m *Metrics) stuckFor(deployment, before, now string) {
	if m == nil || before == now {
		return
	}
	if before != "" {
		m.stuck.DeleteLabelValues(deployment, before)
	}
	if now != "" {
		m.stuck.WithLabelValues(deployment, now).Set(1)
	}
}

// forget drops the series of a deployment.
func (m *Metrics) forget(deployment string) {
	if m != nil {
		m.stuck.DeletePartialMatch(prometheus.Labels{"deployment": deployment})
	}
}
