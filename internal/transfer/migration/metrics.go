package migration

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics exports the migrations of one provider. A nil *Metrics does nothing.
type Metrics struct{ migrations *objectmetrics.Collector }

// NewMetrics registers the metrics. Each scrape computes them from the cache.
func NewMetrics(registerer prometheus.Registerer, provider string, cache client.Reader) (*Metrics, error) {
	machines := prometheus.NewDesc("machinist_migration_machines",
		"Machines of a Migration (namespace/name) that has not ended, by state. total: machines of the old system that have an instance. copied: Machines that were created for these. adopted: Machines that have adopted their instance. old: machines of the old system that still exist.",
		[]string{"migration", "state"}, nil)
	stuck := prometheus.NewDesc("machinist_migration_stuck",
		"1 while the condition Stuck of a Migration (namespace/name) that has not ended is True, else 0, by phase.",
		[]string{"migration", "phase"}, nil)
	m := &Metrics{migrations: objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.MigrationList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list migrations: %w", err)
		}
		for i := range list.Items {
			migration := &list.Items[i]
			status := &migration.Status
			if migration.Spec.Provider != provider || status.Phase == "" || status.Phase.HasEnded() {
				continue
			}
			name := client.ObjectKeyFromObject(migration).String()
			for state, n := range map[string]int32{"total": status.Machines.Total, "copied": status.Machines.Copied,
				"adopted": status.Machines.Adopted, "old": status.Machines.Old} {
				export(machines, float64(n), name, state)
			}
			is := 0.0
			if meta.IsStatusConditionTrue(status.Conditions, v1beta1.ConditionStuck) {
				is = 1
			}
			export(stuck, is, name, string(status.Phase))
		}
		return nil
	}, machines, stuck)}
	if err := registerer.Register(m.migrations); err != nil {
		return nil, fmt.Errorf("register the metrics of migrations: %w", err)
	}
	return m, nil
}

// enable enables the metrics. Call the method when this process becomes the leader, because only the leader exports
// these metrics.
func (m *Metrics) enable() {
	if m != nil {
		m.migrations.StartExport()
	}
}
