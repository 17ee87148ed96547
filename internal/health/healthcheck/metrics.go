package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
	"machinist.dev/machinist/internal/platform/reachability"
)

const (
	resultRequested = "requested"
	resultWithdrawn = "withdrawn"
	resultExhausted = "held"
	resultReplaced  = "replaced"
)

// Metrics are the metrics of the controller. A nil *Metrics does nothing.
type Metrics struct {
	remediations *prometheus.CounterVec
	frozen       *prometheus.GaugeVec
	checks       *objectmetrics.Collector
	unselected   atomic.Pointer[map[string]int]
}

// NewMetrics registers the metrics of the controller. Each scrape reads health checks from the cache.
func NewMetrics(registerer prometheus.Registerer, cache client.Reader) (*Metrics, error) {
	m := &Metrics{remediations: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "machinist_remediations_total",
		Help: "Steps of the remediation of machines. The reason names the policy or the failure of the machine. The result is requested (the machine was marked), withdrawn (the mark was removed), held (too many replacements in a row failed) or replaced (the set deleted the machine).",
	}, []string{"reason", "result"})}
	m.checks = m.checksOf(cache)
	if err := errors.Join(registerer.Register(m.remediations), registerer.Register(m.checks)); err != nil {
		return nil, fmt.Errorf("register the metrics of health checks: %w", err)
	}
	// The counter starts at zero so that the first event counts as an increase.
	m.remediations.WithLabelValues(v1beta1.ReasonRetriesExhausted, resultExhausted)
	var err error
	m.frozen, err = reachability.FrozenMetric(registerer)
	return m, err
}

func (m *Metrics) checksOf(cache client.Reader) *objectmetrics.Collector {
	machines := prometheus.NewDesc("machinist_health_check_machines",
		"Machines that a MachineHealthCheck (namespace/name) reports in its status, by state: selected, healthy, unhealthy (at most 100 are reported).",
		[]string{"check", "state"}, nil)
	circuit := prometheus.NewDesc("machinist_health_check_short_circuited",
		"1 while the condition RemediationAllowed of a MachineHealthCheck (namespace/name) is False, else 0.",
		[]string{"check"}, nil)
	unselected := prometheus.NewDesc("machinist_machines_without_health_check",
		"Machines of a namespace that no MachineHealthCheck selects. The built-in policy applies to these machines.",
		[]string{"machine_namespace"}, nil)
	return objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		if byNamespace := m.unselected.Load(); byNamespace != nil {
			for namespace, n := range *byNamespace {
				export(unselected, float64(n), namespace)
			}
		}
		list := &v1beta1.MachineHealthCheckList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list health checks: %w", err)
		}
		for i := range list.Items {
			c := &list.Items[i]
			check := client.ObjectKeyFromObject(c).String()
			export(machines, float64(c.Status.ExpectedMachines), check, "selected")
			export(machines, float64(c.Status.CurrentHealthy), check, "healthy")
			export(machines, float64(len(c.Status.Targets)), check, "unhealthy")
			stopped := 0.0
			if meta.IsStatusConditionFalse(c.Status.Conditions, v1beta1.ConditionRemediationAllowed) {
				stopped = 1
			}
			export(circuit, stopped, check)
		}
		return nil
	}, machines, circuit, unselected)
}

func (m *Metrics) enable() {
	if m != nil {
		m.checks.StartExport()
	}
}

func (m *Metrics) setUnselected(groups []group) {
	if m == nil {
		return
	}
	unselected := map[string]int{}
	for _, g := range groups {
		if g.check == nil && len(g.subjects) > 0 {
			unselected[g.namespace] = len(g.subjects)
		}
	}
	m.unselected.Store(&unselected)
}

// CountReplacement counts the replacement of a machine. Call the method when a set has deleted a machine in order to
// replace it.
func (m *Metrics) CountReplacement(reason string) { m.count(reason, resultReplaced) }

func (m *Metrics) count(reason, result string) {
	if m != nil {
		m.remediations.WithLabelValues(reason, result).Inc()
	}
}

func (m *Metrics) setMeltdown(d Meltdown) {
	if m != nil {
		m.frozen.WithLabelValues(v1beta1.ReasonMeltdown).Set(float64(len(d)))
	}
}
