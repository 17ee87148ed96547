package machineclass

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics exports the state of one provider's MachineClasses. A nil *Metrics does nothing.
type Metrics struct{ classes *objectmetrics.Collector }

// NewMetrics registers the metrics, which each scrape computes from the cache.
func NewMetrics(registerer prometheus.Registerer, provider string, cache client.Reader) (*Metrics, error) {
	ready := prometheus.NewDesc("machinist_class_ready",
		"1 while the condition Ready of a MachineClass (namespace/name) is True, else 0. While the metric is 0, no instance is created from the class.",
		[]string{"class"}, nil)
	available := prometheus.NewDesc("machinist_class_capacity_available",
		"1 while the condition CapacityAvailable of a MachineClass (namespace/name) is True, else 0. Missing until the cloud has refused an instance for lack of capacity.",
		[]string{"class"}, nil)
	m := &Metrics{classes: objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.MachineClassList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list classes: %w", err)
		}
		for i := range list.Items {
			class := &list.Items[i]
			if class.Spec.Provider != provider || !class.DeletionTimestamp.IsZero() {
				continue
			}
			for kind, desc := range map[string]*prometheus.Desc{v1beta1.ConditionReady: ready,
				v1beta1.ConditionCapacityAvailable: available} {
				condition := meta.FindStatusCondition(class.Status.Conditions, kind)
				if condition == nil {
					continue
				}
				value := 0.0
				if condition.Status == metav1.ConditionTrue {
					value = 1
				}
				export(desc, value, client.ObjectKeyFromObject(class).String())
			}
		}
		return nil
	}, ready, available)}
	if err := registerer.Register(m.classes); err != nil {
		return nil, fmt.Errorf("register the metrics of classes: %w", err)
	}
	return m, nil
}

func (m *Metrics) enable() {
	if m != nil {
		m.classes.StartExport()
	}
}
