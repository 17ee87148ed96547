//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/test/env"
)

// healthTimeout is how long a node may be silent before its machine is replaced. healthTimeout is longer than the
// difference between the times at which Kubernetes detects two silent nodes.
const healthTimeout = 15 * time.Second

func startForHealth(t *testing.T, machines int32) *machinist {
	t.Helper()
	m := start(t, stack.Options{
		SeparateTarget: true, ManagerArgs: defaultLease,
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"},
	})
	m.removeDelays()
	m.createFleet(machines, nil)
	m.awaitRunning(int(machines))
	return m
}

// A broken machine is replaced once. Unreachable and recovered machines are kept.
//
// Rules: unhealthy-after-timeout, health-policy-selection, health-clock-starts-late, max-unhealthy-stops-remediation,
// meltdown-stops-remediation, no-judgement-in-outage.
func TestOnlyBrokenMachinesAreReplaced(t *testing.T) {
	t.Parallel()
	m := startForHealth(t, 10)
	m.createHealthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.MaxUnhealthy = &intstr.IntOrString{Type: intstr.String, StrVal: "20%"}
	})

	t.Log("one node becomes silent")
	before := m.awaitRunning(10)
	victim := before[0]
	m.injectFault(simcloud.FaultSilent, victim)
	silentSince := m.awaitSilent(victim)[0]
	after := m.awaitOneReplaced(before, victim)
	if mark := m.markEvent(victim.UID); mark.at.Before(silentSince.Add(healthTimeout)) {
		t.Errorf("machine %s was marked at %s, too early for a node that is silent since %s", victim.Name, mark.at, silentSince)
	} else if !strings.Contains(mark.note, "MachineHealthCheck workers") {
		t.Errorf("event of the mark: got %q, want a message that names MachineHealthCheck workers", mark.note)
	}
	if n := len(m.instances()); n != 11 {
		t.Errorf("the cloud created %d instances, want 11", n)
	}

	t.Log("30 % of the nodes become silent, with maxUnhealthy 20 %")
	m.injectFault(simcloud.FaultSilent, after[:3]...)
	m.awaitCheck(v1beta1.ReasonTooManyUnhealthy)
	m.awaitSilentFor(healthTimeout+10*time.Second, after[:3]...)
	m.wantUnchangedMachines(after)
	m.awaitCheck(v1beta1.ReasonTooManyUnhealthy)
	m.injectFault(simcloud.FaultRecovers, after[:3]...)
	m.awaitCheck(v1beta1.ReasonRemediationAllowed)
	m.awaitRunning(10)
	m.wantUnchangedMachines(after)

	t.Log("all nodes become silent at once")
	m.injectFault(simcloud.FaultSilent, after...)
	m.awaitCheck(v1beta1.ReasonMeltdown)
	m.awaitSilentFor(healthTimeout+10*time.Second, after...)
	m.wantUnchangedMachines(after)
	t.Log("all nodes except one recover")
	m.injectFault(simcloud.FaultRecovers, after[1:]...)
	// The timeout of the node that is still silent also starts again.
	last := m.awaitOneReplaced(after, after[0])
	// Compare whole seconds, because the times of events have no fractions.
	recovered := m.lastCheckEvent(v1beta1.ReasonRemediationAllowed)
	if mark := m.markEvent(after[0].UID); mark.at.Sub(recovered) < healthTimeout-2*time.Second {
		t.Errorf("machine %s was marked at %s, too early after most nodes recovered at %s", after[0].Name, mark.at, recovered)
	}

	t.Log("an instance is deleted in the cloud")
	m.injectFault(simcloud.FaultVanishes, last[0])
	m.awaitOneReplaced(last, last[0])
	m.wantNoTwins()
	if n := len(m.instances()); n != 13 {
		t.Errorf("the cloud created %d instances, want 13", n)
	}
}

func (m *machinist) createHealthCheck(change func(*v1beta1.MachineHealthCheck)) {
	m.t.Helper()
	c := &v1beta1.MachineHealthCheck{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "workers"}}
	for _, status := range []corev1.ConditionStatus{corev1.ConditionUnknown, corev1.ConditionFalse} {
		c.Spec.UnhealthyNodeConditions = append(c.Spec.UnhealthyNodeConditions, v1beta1.UnhealthyNodeCondition{
			Type: corev1.NodeReady, Status: status, Timeout: metav1.Duration{Duration: healthTimeout},
		})
	}
	change(c)
	m.create(c)
	m.awaitCheck(v1beta1.ReasonRemediationAllowed)
}

func (m *machinist) awaitCheck(reason string) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineHealthCheckList{}, "a health check with the reason "+
		reason, func(l *v1beta1.MachineHealthCheckList) (bool, string) {
		if len(l.Items) != 1 {
			return false, fmt.Sprintf("%d checks", len(l.Items))
		}
		c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionRemediationAllowed)
		return c != nil && c.Reason == reason, fmt.Sprintf("%+v", l.Items[0].Status)
	}, client.InNamespace(namespace))
}

func (m *machinist) injectFault(fault simcloud.InstanceFaultKind, machines ...v1beta1.Machine) {
	m.t.Helper()
	for i := range machines {
		if _, err := m.cloud.AddInstanceFault(context.Background(), m.instanceOf(&machines[i]).ID,
			simcloud.InstanceFault{Kind: fault}); err != nil {
			m.t.Fatalf("%s of machine %s: %v", fault, machines[i].Name, err)
		}
	}
}

func (m *machinist) awaitSilent(machines ...v1beta1.Machine) []time.Time {
	m.t.Helper()
	since := make([]time.Time, len(machines))
	env.Await(m.t, m.target, &corev1.NodeList{}, "silent nodes", func(l *corev1.NodeList) (bool, string) {
		n := 0
		for i := range machines {
			at := slices.IndexFunc(l.Items, func(node corev1.Node) bool { return node.UID == machines[i].Status.NodeRef.UID })
			if at < 0 {
				continue
			}
			for _, c := range l.Items[at].Status.Conditions {
				if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
					since[i] = c.LastTransitionTime.Time
					n++
				}
			}
		}
		return n == len(machines), fmt.Sprintf("%d of %d", n, len(machines))
	})
	return since
}

func (m *machinist) awaitSilentFor(d time.Duration, machines ...v1beta1.Machine) {
	m.t.Helper()
	since := slices.MaxFunc(m.awaitSilent(machines...), time.Time.Compare)
	eventually(m.t, fmt.Sprintf("%d nodes have been silent for %s", len(machines), d), func() (bool, string) {
		return time.Since(since) >= d, since.String()
	})
}

func (m *machinist) wantUnchangedMachines(machines []v1beta1.Machine) {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	if !slices.EqualFunc(machines, list.Items, func(a, b v1beta1.Machine) bool {
		return a.UID == b.UID && b.DeletionTimestamp.IsZero() &&
			!meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.ConditionRemediationRequested)
	}) {
		m.t.Fatalf("the machines have changed:\n%s\nbefore:\n%s", describe(list.Items), describe(machines))
	}
}

func (m *machinist) awaitOneReplaced(before []v1beta1.Machine, victim v1beta1.Machine) []v1beta1.Machine {
	m.t.Helper()
	m.await("the end of machine "+victim.Name, func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(n v1beta1.Machine) bool { return n.UID == victim.UID })
	})
	after := m.awaitRunning(len(before))
	for i := range before {
		if uid := before[i].UID; uid != victim.UID && !slices.ContainsFunc(after, func(n v1beta1.Machine) bool {
			return n.UID == uid
		}) {
			m.t.Fatalf("machine %s was replaced too", before[i].Name)
		}
	}
	return after
}

type eventRecord struct {
	at   time.Time
	note string
}

func (m *machinist) markEvent(machine types.UID) eventRecord {
	m.t.Helper()
	return m.lastEvent(func(e corev1.Event) bool {
		return e.InvolvedObject.UID == machine && e.Reason == v1beta1.ConditionRemediationRequested
	})
}

func (m *machinist) lastCheckEvent(reason string) time.Time {
	m.t.Helper()
	return m.lastEvent(func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "MachineHealthCheck" &&
			e.Reason == reason
	}).at
}

func (m *machinist) lastEvent(wanted func(corev1.Event) bool) (last eventRecord) {
	m.t.Helper()
	eventually(m.t, "an event was recorded", func() (bool, string) {
		list := &corev1.EventList{}
		if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
			m.t.Fatal(err)
		}
		var all []string
		for _, e := range list.Items {
			all = append(all, e.Reason)
			at := e.LastTimestamp.Time
			if wanted(e) && !at.Before(last.at) {
				last = eventRecord{at, e.Message}
			}
		}
		return !last.at.IsZero(), strings.Join(all, " ")
	})
	return last
}
