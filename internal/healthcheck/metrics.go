package healthcheck

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/reachability"
)

// Results of a remediation.
const (
	resultRequested = "requested"
	resultWithdrawn = "withdrawn"
	resultExhausted = "held"
	resultReplaced  = "replaced"
)

// Metrics of the controller. A nil *Metrics counts nothing.
type Metrics struct {
	remediations *prometheus.CounterVec
	frozen       *prometheus.GaugeVec
}

// NewMetrics registers the metrics of the controller.
func NewMetrics(registerer prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{remediations: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_remediations_total",
		Help: "Steps of the remediation of machines, by the policy that asks or the failure of the machine, and the result: requested (marked as unhealthy), withdrawn (the mark was taken back), held (not to be replaced, as too many in a row were), replaced (deleted by the set in order to be replaced).",
	}, []string{"reason", "result"})}
	if err := registerer.Register(m.remediations); err != nil {
		return nil, fmt.Errorf("register machinist_remediations_total: %w", err)
	}
	var err error
	m.frozen, err = reachability.FrozenMetric(registerer)
	return m, err
}

// Replaced counts a machine that its set deleted in order to replace it.
func (m *Metrics) Replaced(reason string) { m.count(reason, resultReplaced) }

func (m *Metrics) count(reason, result string) {
	if m != nil {
		m.remediations.WithLabelValues(reason, result).Inc()
	}
}

// melts tells in how many failure domains remediation is stopped.
func (m *Metrics) melts(d Meltdown) {
	if m != nil {
		m.frozen.WithLabelValues(v1beta1.ReasonMeltdown).Set(float64(len(d)))
	}
}
