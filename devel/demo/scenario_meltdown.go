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
	check            = "workers"
	meltdownMachines = 5
	meltdownSilent   = 4
)

// meltdownStory tells of most nodes going silent at once, as when a network fails.
type meltdownStory struct {
	*stage
	// before are the machines at the start. The first of them go silent, and the very first does not return.
	before []v1beta1.Machine
	// recovered is when the check went on.
	recovered time.Time
}

func (m *meltdownStory) acts() []act {
	return []act{
		{fmt.Sprintf("A fleet of %d machines becomes Ready nodes. MachineHealthCheck %s has a machine replaced whose node is silent for %s.", meltdownMachines, check, storyTimeout), m.fleetRuns},
		{fmt.Sprintf("%d of the %d nodes go silent at once. That is more than --health-meltdown-threshold (%d%% by default): not the machines are broken, but something that they share.",
			meltdownSilent, meltdownMachines, healthcheck.DefaultMeltdownThreshold), m.silence},
		{fmt.Sprintf("They are silent for longer than %s, and no machine is replaced.", storyTimeout), m.nothingHappens},
		{fmt.Sprintf("%d of them return. One does not.", meltdownSilent-1), m.recover},
		{fmt.Sprintf("Its time starts anew: it is given another %s. Then it is replaced, and no other is.", storyTimeout),
			m.replaced},
		{"The fleet is deleted.", m.end},
	}
}

func (m *meltdownStory) fleetRuns(ctx context.Context) error {
	if err := m.fleet.Create(ctx, healthCheck()); err != nil {
		return fmt.Errorf("create health check %s: %w", check, err)
	}
	err := m.machines(ctx, func(s snapshot) bool {
		m.before = s.machines
		return s.running(meltdownMachines, examples.SmallClass)
	})
	if err != nil {
		return err
	}
	if _, err := m.allowed(ctx, metav1.ConditionTrue, v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	_, err = m.check(ctx, nil, "get", "mhc")
	return err
}

// allowed waits until the check says whether and why machines are remediated, and returns since when it does.
func (m *meltdownStory) allowed(ctx context.Context, status metav1.ConditionStatus, reason string) (since time.Time,
	err error) {
	err = m.until(ctx, func(ctx context.Context) error {
		c := &v1beta1.MachineHealthCheck{}
		if err := m.fleet.Get(ctx, client.ObjectKey{Namespace: namespace, Name: check}, c); err != nil {
			return err
		}
		allowed := meta.FindStatusCondition(c.Status.Conditions, v1beta1.ConditionRemediationAllowed)
		if allowed == nil || allowed.Status != status || allowed.Reason != reason ||
			c.Status.ExpectedMachines != meltdownMachines {
			return fmt.Errorf("health check %s says %+v", check, c.Status)
		}
		since = allowed.LastTransitionTime.Time
		return nil
	})
	return since, err
}

func (m *meltdownStory) befall(ctx context.Context, fault simcloud.InstanceFaultKind,
	machines []v1beta1.Machine) error {
	dump, err := m.cloud.Dump(ctx)
	if err != nil {
		return fmt.Errorf("ask the cloud for its instances: %w", err)
	}
	for i := range machines {
		at := slices.IndexFunc(dump.Records, func(r simcloud.Record) bool {
			return r.ProviderID == machines[i].Spec.ProviderID
		})
		if at < 0 {
			return fmt.Errorf("the cloud knows no instance %s", machines[i].Spec.ProviderID)
		}
		if _, err := m.cloud.AddInstanceFault(ctx, dump.Records[at].ID, simcloud.InstanceFault{Kind: fault}); err != nil {
			return fmt.Errorf("%s of the instance of machine %s: %w", fault, machines[i].Name, err)
		}
	}
	return nil
}

func (m *meltdownStory) silence(ctx context.Context) error {
	if err := m.befall(ctx, simcloud.FaultSilent, m.before[:meltdownSilent]); err != nil {
		return err
	}
	if _, err := m.allowed(ctx, metav1.ConditionFalse, v1beta1.ReasonMeltdown); err != nil {
		return err
	}
	if err := m.condition(ctx, "mhc/"+check, v1beta1.ConditionRemediationAllowed, v1beta1.ReasonMeltdown); err != nil {
		return err
	}
	if err := m.event(ctx, v1beta1.ReasonMeltdown, "machinehealthcheck/"+check); err != nil {
		return err
	}
	m.screen.Printf("   It holds in two places: over all machines, and in the zone that all of them are in.")
	return m.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonMeltdown+`"`, "2")
}

func (m *meltdownStory) nothingHappens(ctx context.Context) error {
	var since time.Time
	err := m.until(ctx, func(ctx context.Context) (err error) {
		since, err = m.silentSince(ctx, m.before[:meltdownSilent])
		return err
	})
	if err != nil {
		return err
	}
	err = m.meanwhile(ctx, since.Add(storyTimeout+margin), func(s snapshot) error {
		if len(s.machines) != meltdownMachines {
			return fmt.Errorf("there are %d machines, want the %d from before", len(s.machines), meltdownMachines)
		}
		return s.remaining(m.before)
	})
	if err != nil {
		return err
	}
	if _, err := m.check(ctx, nil, "get", "mhc,ma"); err != nil {
		return err
	}
	return m.made(ctx, meltdownMachines)
}

// silentSince returns when Kubernetes noticed of the last of some nodes that it is silent. As long as it has not of all
// of them, that is an error.
func (m *meltdownStory) silentSince(ctx context.Context, machines []v1beta1.Machine) (last time.Time, err error) {
	for i := range machines {
		node := &corev1.Node{}
		if err := m.target.Get(ctx, client.ObjectKey{Name: machines[i].Status.NodeRef.Name}, node); err != nil {
			return last, fmt.Errorf("read the node of machine %s: %w", machines[i].Name, err)
		}
		at := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown
		})
		if at < 0 {
			return last, fmt.Errorf("node %s is not known to be silent", node.Name)
		}
		if t := node.Status.Conditions[at].LastTransitionTime.Time; t.After(last) {
			last = t
		}
	}
	return last, nil
}

func (m *meltdownStory) recover(ctx context.Context) (err error) {
	if err := m.befall(ctx, simcloud.FaultRecovers, m.before[1:meltdownSilent]); err != nil {
		return err
	}
	if m.recovered, err = m.allowed(ctx, metav1.ConditionTrue, v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	if err := m.condition(ctx, "mhc/"+check, v1beta1.ConditionRemediationAllowed,
		v1beta1.ReasonRemediationAllowed); err != nil {
		return err
	}
	return m.gauge(ctx, "machinist_frozen", `reason="`+v1beta1.ReasonMeltdown+`"`, "0")
}

func (m *meltdownStory) replaced(ctx context.Context) error {
	victim, others := &m.before[0], m.before[1:]
	err := m.keeping(ctx, others, func(s snapshot) bool {
		return s.running(meltdownMachines, examples.SmallClass) &&
			!slices.ContainsFunc(s.machines, func(o v1beta1.Machine) bool { return o.UID == victim.UID })
	})
	if err != nil {
		return err
	}
	var marked time.Time
	err = m.until(ctx, func(ctx context.Context) error {
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
		return fmt.Errorf("no event tells why machine %s was replaced", victim.Name)
	})
	if err != nil {
		return err
	}
	// Events tell whole seconds.
	if given := marked.Sub(m.recovered); given < storyTimeout-time.Second {
		return fmt.Errorf("machine %s was given %s after the others had returned, want %s at least", victim.Name, given,
			storyTimeout)
	}
	if err := m.event(ctx, v1beta1.ConditionRemediationRequested, "machine/"+victim.Name); err != nil {
		return err
	}
	return m.made(ctx, meltdownMachines+1)
}

func (m *meltdownStory) end(ctx context.Context) error {
	if err := m.clear(ctx, healthCheck()); err != nil {
		return err
	}
	return m.made(ctx, meltdownMachines+1)
}

// healthCheck has machines of the fleet replaced whose nodes are silent for longer than the story gives them.
func healthCheck() *v1beta1.MachineHealthCheck {
	c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: check}}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		c.Spec.UnhealthyNodeConditions = append(c.Spec.UnhealthyNodeConditions, v1beta1.UnhealthyNodeCondition{
			Type: corev1.NodeReady, Status: status, Timeout: metav1.Duration{Duration: storyTimeout},
		})
	}
	return c
}
