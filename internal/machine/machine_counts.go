package machine

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/platform/objectmetrics"
)

type machineCounts struct {
	provider           string
	requireTypeVersion bool
	machines           map[machinesKey]int
	skipped            map[string]int
	blocked            map[blockedKey]int
	// oldestTimes contains the creation or deletion time of the oldest machine of each phase and deployment.
	oldestTimes map[oldestKey]time.Time
}

type (
	oldestKey   struct{ phase, deployment string }
	machinesKey struct{ phase, deployment, class string }
	blockedKey  struct{ deployment, reason string }
)

func newMachineCounts(provider string, cache client.Reader, requireTypeVersion bool) *objectmetrics.Collector {
	machines := prometheus.NewDesc("machinist_machines",
		"Machines by phase, deployment and class (both namespace/name, empty for none).",
		[]string{"phase", "deployment", "class"}, nil)
	skipped := prometheus.NewDesc("machinist_machines_skipped",
		"Machines that are neither launched nor changed, by reason.", []string{"reason"}, nil)
	blocked := prometheus.NewDesc("machinist_drains_blocked",
		"Machines whose drain is blocked by a PodDisruptionBudget or an error, by deployment (namespace/name, empty for none) and reason of the condition Drained.",
		[]string{"deployment", "reason"}, nil)
	oldest := prometheus.NewDesc("machinist_machine_oldest_timestamp_seconds",
		"Creation time (phases Pending, Provisioning and Provisioned) or deletion time (phase Deleting) of the oldest machine in the phase, by phase and deployment (namespace/name, empty for none).",
		[]string{"phase", "deployment"}, nil)
	return objectmetrics.New(func(ctx context.Context, export objectmetrics.Export) error {
		list := &v1beta1.MachineList{}
		if err := cache.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list machines: %w", err)
		}
		c := machineCounts{provider: provider, requireTypeVersion: requireTypeVersion, machines: map[machinesKey]int{},
			skipped: map[string]int{}, blocked: map[blockedKey]int{},
			oldestTimes: map[oldestKey]time.Time{}}
		for i := range list.Items {
			c.add(&list.Items[i])
		}
		for is, n := range c.machines {
			export(machines, float64(n), is.phase, is.deployment, is.class)
		}
		for reason, n := range c.skipped {
			export(skipped, float64(n), reason)
		}
		for is, n := range c.blocked {
			export(blocked, float64(n), is.deployment, is.reason)
		}
		for is, since := range c.oldestTimes {
			export(oldest, float64(since.Unix()), is.phase, is.deployment)
		}
		return nil
	}, machines, skipped, blocked, oldest)
}

// add counts a Machine that belongs to the provider or to no provider. All providers report Machines without a
// provider.
func (c *machineCounts) add(m *v1beta1.Machine) {
	switch provider := machinestate.Provider(m); {
	case provider == "" && m.DeletionTimestamp.IsZero() && m.Status.ObservedGeneration != 0:
		c.skipped[skippedWithoutProvider]++ // No provider claimed the Machine.
		return
	case provider != c.provider:
		return
	}
	is := machinesKey{phase: string(m.Status.Phase)}
	switch {
	case !m.DeletionTimestamp.IsZero():
		is.phase = string(v1beta1.MachineDeleting)
	case is.phase == "":
		is.phase = string(v1beta1.MachinePending)
	}
	if name := m.Labels[v1beta1.LabelMachineDeployment]; name != "" {
		is.deployment = m.Namespace + "/" + name
	}
	if m.Spec.ClassRef != nil {
		is.class = m.Namespace + "/" + m.Spec.ClassRef.Name
	}
	c.machines[is]++
	switch {
	case machinestate.IsPaused(m):
		c.skipped[v1beta1.ReasonPausedByAnnotation]++
	case m.DeletionTimestamp.IsZero() && unsupportedSchema(m, c.requireTypeVersion) != "":
		c.skipped[v1beta1.ReasonUnknownTypeVersion]++
	default:
		if reason := drainBlockedBy(m); reason != "" {
			c.blocked[blockedKey{is.deployment, reason}]++
		}
		c.addOldest(m, oldestKey{is.phase, is.deployment})
	}
}

func (c *machineCounts) addOldest(m *v1beta1.Machine, is oldestKey) {
	since := m.CreationTimestamp.Time
	switch v1beta1.MachinePhase(is.phase) {
	case v1beta1.MachinePending, v1beta1.MachineProvisioning, v1beta1.MachineProvisioned:
	case v1beta1.MachineDeleting:
		since = m.DeletionTimestamp.Time
	default:
		return
	}
	if known, ok := c.oldestTimes[is]; !ok || since.Before(known) {
		c.oldestTimes[is] = since
	}
}

// drainBlockedBy returns the reason of the condition Drained if an administrator, an application or an API server
// blocks the drain. It returns "" if the drain only waits until pods have ended.
func drainBlockedBy(m *v1beta1.Machine) string {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionDrained)
	if c == nil || c.Status != metav1.ConditionFalse {
		return ""
	}
	switch c.Reason {
	case v1beta1.ReasonBlockedByDisruptionBudget, v1beta1.ReasonDrainError:
		return c.Reason
	}
	return ""
}
