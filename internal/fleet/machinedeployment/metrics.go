package machinedeployment

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

// Metrics exports the replicas of deployments and the rollouts that are stuck. A nil *Metrics records nothing.
type Metrics struct {
	stuck    *prometheus.GaugeVec
	replicas *objectmetrics.Collector
}

// NewMetrics registers the metrics. Each scrape computes the replicas of deployments from the cache.
func NewMetrics(registerer prometheus.Registerer, cache client.Reader) (*Metrics, error) {
	m := &Metrics{stuck: prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "machinist_rollout_stuck",
		Help: "1 while the rollout of a MachineDeployment (namespace/name) cannot continue, by the reason of its condition Progressing.",
	}, []string{"deployment", "reason"}), replicas: replicasOf(cache)}
	if err := errors.Join(registerer.Register(m.stuck), registerer.Register(m.replicas)); err != nil {
		return nil, fmt.Errorf("register the metrics of deployments: %w", err)
	}
	return m, nil
}

func replicasOf(cache client.Reader) *objectmetrics.Collector {
	replicas := prometheus.NewDesc("machinist_deployment_replicas",
		"Replicas of a MachineDeployment (namespace/name), by state: desired, current, ready, available and updated.",
		[]string{"deployment", "state"}, nil)
	return objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.MachineDeploymentList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list deployments: %w", err)
		}
		for i := range list.Items {
			d := &list.Items[i]
			for state, n := range map[string]int32{
				"desired": d.ReplicasOrDefault(), "current": d.Status.Replicas, "ready": d.Status.ReadyReplicas,
				"available": d.Status.AvailableReplicas, "updated": d.Status.UpdatedReplicas,
			} {
				export(replicas, float64(n), client.ObjectKeyFromObject(d).String(), state)
			}
		}
		return nil
	}, replicas)
}

// enable enables the metrics of replicas. Only the process that reconciles deployments exports them.
func (m *Metrics) enable() {
	if m != nil {
		m.replicas.StartExport()
	}
}

// stuckFor replaces the reason for a stuck rollout in the metric. An empty reason means that the rollout is not stuck.
func (m *Metrics) stuckFor(deployment, previousReason, reason string) {
	if m == nil || previousReason == reason {
		return
	}
	if previousReason != "" {
		m.stuck.DeleteLabelValues(deployment, previousReason)
	}
	if reason != "" {
		m.stuck.WithLabelValues(deployment, reason).Set(1)
	}
}

func (m *Metrics) forget(deployment string) {
	if m != nil {
		m.stuck.DeletePartialMatch(prometheus.Labels{"deployment": deployment})
	}
}
