package machineset

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics are the metrics of the controller. A nil *Metrics records nothing.
type Metrics struct{ replicas *objectmetrics.Collector }

// NewMetrics registers the metrics, which each scrape computes from the cache.
func NewMetrics(registerer prometheus.Registerer, cache client.Reader) (*Metrics, error) {
	replicas := prometheus.NewDesc("machinist_set_replicas",
		"Replicas of a MachineSet, by state: desired, current, ready, available and up_to_date. The values of the labels are namespace/name. The label deployment is empty for a standalone set.",
		[]string{"set", "deployment", "state"}, nil)
	byProvider := prometheus.NewDesc("machinist_provider_machines",
		"Machines by provider. The process machinist-provider-<provider> must run to serve them.",
		[]string{"provider"}, nil)
	m := &Metrics{replicas: objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.MachineSetList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list sets: %w", err)
		}
		for i := range list.Items {
			set := &list.Items[i]
			deployment := deploymentOf(set)
			if deployment != "" && set.ReplicasOrDefault() == 0 && set.Status.Replicas == 0 {
				continue // The revision is not in use. A deployment may keep 100 such sets.
			}
			for state, n := range map[string]int32{
				"desired": set.ReplicasOrDefault(), "current": set.Status.Replicas, "ready": set.Status.ReadyReplicas,
				"available": set.Status.AvailableReplicas, "up_to_date": set.Status.UpToDateReplicas,
			} {
				export(replicas, float64(n), client.ObjectKeyFromObject(set).String(), deployment, state)
			}
		}
		machines := &v1beta1.MachineList{}
		if err := cache.List(ctx, machines, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list machines: %w", err)
		}
		providers := map[string]int{}
		for i := range machines.Items {
			if provider := machinestate.Provider(&machines.Items[i]); provider != "" {
				providers[provider]++
			}
		}
		for provider, n := range providers {
			export(byProvider, float64(n), provider)
		}
		return nil
	}, replicas, byProvider)}
	if err := registerer.Register(m.replicas); err != nil {
		return nil, fmt.Errorf("register the metrics of sets: %w", err)
	}
	return m, nil
}

func deploymentOf(set *v1beta1.MachineSet) string {
	if owner := metav1.GetControllerOfNoCopy(set); owner != nil && owner.Kind == "MachineDeployment" {
		return set.Namespace + "/" + owner.Name
	}
	return ""
}

func (m *Metrics) enable() {
	if m != nil {
		m.replicas.StartExport()
	}
}
