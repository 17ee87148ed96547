package installer

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics exports metrics about the state of each Provider. The methods of a nil *Metrics do nothing.
type Metrics struct{ providers *objectmetrics.Collector }

// NewMetrics registers the metrics. Each scrape computes them from the cache.
func NewMetrics(registerer prometheus.Registerer, cache client.Reader) (*Metrics, error) {
	degraded := prometheus.NewDesc("machinist_installation_degraded",
		"1 while the condition Degraded of a Provider is True, else 0.", []string{"installation"}, nil)
	m := &Metrics{providers: objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.ProviderList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list providers: %w", err)
		}
		for i := range list.Items {
			value := 0.0
			if meta.IsStatusConditionTrue(list.Items[i].Status.Conditions, v1beta1.ConditionDegraded) {
				value = 1
			}
			export(degraded, value, list.Items[i].Name)
		}
		return nil
	}, degraded)}
	if err := registerer.Register(m.providers); err != nil {
		return nil, fmt.Errorf("register the metrics of providers: %w", err)
	}
	return m, nil
}

func (m *Metrics) enable() {
	if m != nil {
		m.providers.StartExport()
	}
}
