package report

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/fleet/disruption"
	"machinist.dev/machinist/internal/platform/index"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics exports how many disruptions the budgets allow, how many machines are disrupted, and how many disruptions are
// blocked. A nil *Metrics records nothing.
type Metrics struct {
	budgets *objectmetrics.Collector
}

// NewMetrics registers the metrics, which each scrape computes from the cache. ledger, which may be nil, provides the
// number of waiting machines.
func NewMetrics(registerer prometheus.Registerer, cache client.Reader, ledger *disruption.Ledger,
	at clock.PassiveClock) (*Metrics, error) {
	allowed := prometheus.NewDesc("machinist_disruptions_allowed",
		"How many machines a MachineDisruptionBudget (namespace/name) allows to be disrupted at the same time. The metric is absent while the budget is not in force.",
		[]string{"budget"}, nil)
	current := prometheus.NewDesc("machinist_disruptions_current",
		"Disrupted machines that a MachineDisruptionBudget (namespace/name) selects, by reason.",
		[]string{"budget", "reason"}, nil)
	blocked := prometheus.NewDesc("machinist_disruptions_blocked",
		"Machines whose disruption is blocked by a MachineDisruptionBudget or the annotation do-not-disrupt, by reason of the disruption.",
		[]string{"reason"}, nil)
	collector := objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		budgets, err := index.ListShared[v1beta1.MachineDisruptionBudget](ctx, cache, &v1beta1.MachineDisruptionBudgetList{})
		if err != nil {
			return fmt.Errorf("list disruption budgets: %w", err)
		}
		machines := map[string][]*v1beta1.Machine{}
		for _, b := range budgets {
			if b.DeletionTimestamp != nil {
				continue
			}
			if _, listed := machines[b.Namespace]; !listed {
				machines[b.Namespace], err = index.ListShared[v1beta1.Machine](ctx, cache, &v1beta1.MachineList{},
					client.InNamespace(b.Namespace))
				if err != nil {
					return fmt.Errorf("list the machines that budgets select: %w", err)
				}
			}
			parsed, _ := disruption.Parse(b)
			use := Count(parsed, machines[b.Namespace])
			if parsed.InForce(at.Now()) {
				export(allowed, float64(parsed.AllowedDisruptions(use.Selected)), parsed.String())
			}
			for reason, n := range use.Disrupted {
				export(current, float64(n), parsed.String(), string(reason))
			}
		}
		for reason, n := range ledger.CountBlocked() {
			export(blocked, float64(n), string(reason))
		}
		return nil
	}, allowed, current, blocked)
	if err := registerer.Register(collector); err != nil {
		return nil, fmt.Errorf("register the metrics of disruption budgets: %w", err)
	}
	return &Metrics{budgets: collector}, nil
}

// enable enables the metrics. Only the process that reconciles budgets exports them.
func (m *Metrics) enable() {
	if m != nil {
		m.budgets.StartExport()
	}
}
