package demo

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/internal/health/healthcheck"
	"machinist.dev/machinist/simcloud"
)

const (
	healthCheckName  = "workers"
	meltdownMachines = 5
	meltdownSilent   = 4
)

// meltdownScenario shows a network failure in which most nodes stop reporting their status at the same time.
type meltdownScenario struct {
	*scenarioEnv
	// initialMachines are the machines at the start. The nodes of the first machines stop reporting their status. All
	// of these nodes recover, except the first one.
	initialMachines []v1beta1.Machine
	// recoveryTime is the time at which the health check allowed remediation again.
	recoveryTime time.Time
}

func (m *meltdownScenario) steps() []scenarioStep {
	return []scenarioStep{
		{fmt.Sprintf("Create a fleet of %d machines and the MachineHealthCheck %s. It replaces a machine whose node has not reported for %s.", meltdownMachines, healthCheckName, scenarioTimeout), m.fleetRuns},
		{fmt.Sprintf("Stop %d of the %d nodes from reporting at once. That is more than --health-meltdown-threshold (%d%% by default), so the cause is probably not the machines but something that they share.",
			meltdownSilent, meltdownMachines, healthcheck.DefaultMeltdownThreshold), m.silence},
		{fmt.Sprintf("Wait for longer than %s. The nodes do not report, and no machine is replaced.", scenarioTimeout), m.nothingHappens},
		{fmt.Sprintf("Let %d of the nodes report again. One does not.", meltdownSilent-1), m.recover},
		{fmt.Sprintf("The timeout of the last silent node starts again, so the node has another %s to recover. Then only its machine is replaced.", scenarioTimeout),
			m.replaced},
		{"Delete the fleet.", m.end},
	}
}

func (m *meltdownScenario) fleetRuns(ctx context.Context) error {
	if err := m.fleet.Create(ctx, healthCheck()); err != nil {
		return fmt.Errorf("create health check %s: %w", healthCheckName, err)
	}
	err := m.awaitFleet(ctx, func(s snapshot) bool {
		m.initialMachines = s.machines
		return s.isRunning(meltdownMachines, examples.SmallClass)
	})
	if err != nil {
		return err
	}
	if _, err := m.awaitRemediation(ctx, metav1.ConditionTrue, v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	_, err = m.showKubectl(ctx, nil, "get", "mhc")
	return err
}

// awaitRemediation waits until the health check's condition RemediationAllowed has this status and reason. It returns
// the transition time.
func (m *meltdownScenario) awaitRemediation(ctx context.Context, status metav1.ConditionStatus, reason string) (
	since time.Time, err error) {
	err = m.poll(ctx, func(ctx context.Context) error {
		c := &v1beta1.MachineHealthCheck{}
		if err := m.fleet.Get(ctx, client.ObjectKey{Namespace: namespace, Name: healthCheckName}, c); err != nil {
			return err
		}
		allowed := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionRemediationAllowed)
		if allowed == nil || allowed.Status != status || allowed.Reason != reason ||
			c.Status.ExpectedMachines != meltdownMachines {
			return fmt.Errorf("health check %s has the status %+v", healthCheckName, c.Status)
		}
		since = allowed.LastTransitionTime.Time
		return nil
	})
	return since, err
}

func (m *meltdownScenario) injectFault(ctx context.Context, fault simcloud.InstanceFaultKind,
	machines []v1beta1.Machine) error {
	dump, err := m.cloud.Dump(ctx)
	if err != nil {
		return fmt.Errorf("list the instances of the cloud: %w", err)
	}
	for i := range machines {
		at := slices.IndexFunc(dump.Records, func(r simcloud.Record) bool {
			return r.ProviderID == machines[i].Spec.ProviderID
		})
		if at < 0 {
			return fmt.Errorf("the cloud has no instance %s", machines[i].Spec.ProviderID)
		}
		if _, err := m.cloud.AddInstanceFault(ctx, dump.Records[at].ID, simcloud.InstanceFault{Kind: fault}); err != nil {
			return fmt.Errorf("inject the fault %s into the instance of machine %s: %w", fault, machines[i].Name, err)
		}
	}
	return nil
}

func (m *meltdownScenario) silence(ctx context.Context) error {
	if err := m.injectFault(ctx, simcloud.FaultSilent, m.initialMachines[:meltdownSilent]); err != nil {
		return err
	}
	if _, err := m.awaitRemediation(ctx, metav1.ConditionFalse, v1beta1.ReasonMeltdown); err != nil {
		return err
	}
	if err := m.condition(ctx, "mhc/"+healthCheckName, v1beta1.ConditionRemediationAllowed,
		v1beta1.ReasonMeltdown); err != nil {
		return err
	}
	if err := m.event(ctx, v1beta1.ReasonMeltdown, "machinehealthcheck/"+healthCheckName); err != nil {
		return err
	}
	m.screen.Printf("   The meltdown counts twice: for all machines, and for the zone that contains all of them.")
	return m.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonMeltdown+`"`, "2")
}

func (m *meltdownScenario) nothingHappens(ctx context.Context) error {
	var since time.Time
	err := m.poll(ctx, func(ctx context.Context) (err error) {
		since, err = m.silentSince(ctx, m.initialMachines[:meltdownSilent])
		return err
	})
	if err != nil {
		return err
	}
	err = m.holdsUntil(ctx, since.Add(scenarioTimeout+margin), func(s snapshot) error {
		if len(s.machines) != meltdownMachines {
			return fmt.Errorf("there are %d machines, want the %d from before", len(s.machines), meltdownMachines)
		}
		return s.checkKept(m.initialMachines)
	})
	if err != nil {
		return err
	}
	if _, err := m.showKubectl(ctx, nil, "get", "mhc,ma"); err != nil {
		return err
	}
	return m.checkCreatedInstances(ctx, meltdownMachines)
}

// silentSince returns the time at which the Ready condition of the last given machine's node became Unknown. It returns
// an error while any of these conditions is not Unknown yet.
func (m *meltdownScenario) silentSince(ctx context.Context, machines []v1beta1.Machine) (last time.Time, err error) {
	for i := range machines {
		node := &corev1.Node{}
		if err := m.target.Get(ctx, client.ObjectKey{Name: machines[i].Status.NodeRef.Name}, node); err != nil {
			return last, fmt.Errorf("read the node of machine %s: %w", machines[i].Name, err)
		}
		at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		})
		if at < 0 {
			return last, fmt.Errorf("the Ready condition of node %s is not Unknown yet", node.Name)
		}
		if t := node.Status.Conditions[at].LastTransitionTime.Time; t.After(last) {
			last = t
		}
	}
	return last, nil
}

func (m *meltdownScenario) recover(ctx context.Context) (err error) {
	if err := m.injectFault(ctx, simcloud.FaultRecovers, m.initialMachines[1:meltdownSilent]); err != nil {
		return err
	}
	if m.recoveryTime, err = m.awaitRemediation(ctx, metav1.ConditionTrue, v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	if err := m.condition(ctx, "mhc/"+healthCheckName, v1beta1.ConditionRemediationAllowed,
		v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	return m.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonMeltdown+`"`, "0")
}

func (m *meltdownScenario) replaced(ctx context.Context) error {
	victim, others := &m.initialMachines[0], m.initialMachines[1:]
	err := m.awaitFleetKeeping(ctx, others, func(s snapshot) bool {
		return s.isRunning(meltdownMachines, examples.SmallClass) &&
			!slices.ContainsFunc(s.machines, func(o v1beta1.Machine) bool { return o.UID == victim.UID })
	})
	if err != nil {
		return err
	}
	var marked time.Time
	err = m.poll(ctx, func(ctx context.Context) error {
		list := &corev1.EventList{}
		if err := m.fleet.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return fmt.Errorf("list events: %w", err)
		}
		for _, e := range list.Items {
			if e.Reason == v1beta1.ConditionRemediationRequested && e.InvolvedObject.UID == victim.UID {
				marked = e.LastTimestamp.Time
				return nil
			}
		}
		return fmt.Errorf("there is no event about the replacement of machine %s", victim.Name)
	})
	if err != nil {
		return err
	}
	// Events have times in whole seconds.
	if given := marked.Sub(m.recoveryTime); given < scenarioTimeout-time.Second {
		return fmt.Errorf("machine %s was marked %s after the other nodes had recovered, want at least %s", victim.Name, given,
			scenarioTimeout)
	}
	if err := m.event(ctx, v1beta1.ConditionRemediationRequested, "machine/"+victim.Name); err != nil {
		return err
	}
	return m.checkCreatedInstances(ctx, meltdownMachines+1)
}

func (m *meltdownScenario) end(ctx context.Context) error {
	if err := m.deleteFleet(ctx, healthCheck()); err != nil {
		return err
	}
	return m.checkCreatedInstances(ctx, meltdownMachines+1)
}

// healthCheck returns a health check that replaces a machine whose node has not reported its status for
// scenarioTimeout.
func healthCheck() *v1beta1.MachineHealthCheck {
	c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: healthCheckName}}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		c.Spec.UnhealthyNodeConditions = append(c.Spec.UnhealthyNodeConditions, v1beta1.UnhealthyNodeCondition{
			Type: corev1.NodeReady, Status: status, Timeout: metav1.Duration{Duration: scenarioTimeout},
		})
	}
	return c
}
