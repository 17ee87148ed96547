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

// healthTimeout is how long a node may be silent in these tests: longer than what lies between the moments at which
// Kubernetes notices of two nodes that they have gone silent together.
const healthTimeout = 15 * time.Second

// startForHealth brings a fleet up whose silent nodes Kubernetes notices within 20 seconds.
func startForHealth(t *testing.T, machines int32) *machinist {
	t.Helper()
	m := start(t, stack.Options{
		SeparateTarget: true, ManagerArgs: defaultLease,
		ExtraControllerManagerArgs: []string{"--node-monitor-grace-period=20s", "--node-monitor-period=1s"},
	})
	m.quick()
	m.fleet(machines, nil)
	m.running(int(machines))
	return m
}

// What is broken is replaced, once; what is merely unreachable is left alone, and so is what comes back.
//
// Rules: unhealthy-after-timeout, health-policy-selection, health-clock-starts-late,
// max-unhealthy-stops-remediation, meltdown-stops-remediation, no-judgement-in-outage.
func TestWhatIsBrokenIsReplacedAndWhatIsUnreachableIsNot(t *testing.T) {
	t.Parallel()
	m := startForHealth(t, 10)
	m.healthCheck(func(c *v1beta1.MachineHealthCheck) {
		c.Spec.MaxUnhealthy = &intstr.IntOrString{Type: intstr.String, StrVal: "20%"}
	})

	t.Log("one node is silent")
	before := m.running(10)
	victim := before[0]
	m.befall(simcloud.FaultSilent, victim)
	silentSince := m.noticed(victim)[0]
	after := m.replaced(before, victim)
	if mark := m.markOf(victim.UID); mark.at.Before(silentSince.Add(healthTimeout)) {
		t.Errorf("machine %s was marked at %s, and its node is silent since %s", victim.Name, mark.at, silentSince)
	} else if !strings.Contains(mark.note, "MachineHealthCheck workers") {
		t.Errorf("the event of the mark says %q", mark.note)
	}
	if n := len(m.instances()); n != 11 {
		t.Errorf("the cloud made %d instances, want 11", n)
	}

	t.Log("30 % are silent, with maxUnhealthy 20 %")
	m.befall(simcloud.FaultSilent, after[:3]...)
	m.awaitCheck(v1beta1.ReasonTooManyUnhealthy)
	m.silentFor(healthTimeout+10*time.Second, after[:3]...)
	m.unchanged(after)
	m.awaitCheck(v1beta1.ReasonTooManyUnhealthy)
	m.befall(simcloud.FaultRecovers, after[:3]...)
	m.awaitCheck(v1beta1.ReasonRemediationAllowed)
	m.running(10)
	m.unchanged(after)

	t.Log("every node is silent at once")
	m.befall(simcloud.FaultSilent, after...)
	m.awaitCheck(v1beta1.ReasonMeltdown)
	m.silentFor(healthTimeout+10*time.Second, after...)
	m.unchanged(after)
	t.Log("all return but one")
	m.befall(simcloud.FaultRecovers, after[1:]...)
	// Its clock starts anew as well.
	last := m.replaced(after, after[0])
	// Events tell whole seconds.
	recovered := m.reportedLast(v1beta1.ReasonRemediationAllowed)
	if mark := m.markOf(after[0].UID); mark.at.Sub(recovered) < healthTimeout-2*time.Second {
		t.Errorf("machine %s was marked at %s, and most nodes are well only since %s", after[0].Name, mark.at, recovered)
	}

	t.Log("an instance is deleted behind our back")
	m.befall(simcloud.FaultVanishes, last[0])
	m.replaced(last, last[0])
	m.noTwins()
	if n := len(m.instances()); n != 13 {
		t.Errorf("the cloud made %d instances, want 13", n)
	}
}

// healthCheck makes a check of the whole fleet.
func (m *machinist) healthCheck(change func(*v1beta1.MachineHealthCheck)) {
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

// awaitCheck waits until the check gives a reason for what it does.
func (m *machinist) awaitCheck(reason string) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineHealthCheckList{}, "a health check that says "+
		reason, func(l *v1beta1.MachineHealthCheckList) (bool, string) {
		if len(l.Items) != 1 {
			return false, fmt.Sprintf("%d checks", len(l.Items))
		}
		c := meta.FindStatusCondition(l.Items[0].Status.Conditions, v1beta1.ConditionRemediationAllowed)
		return c != nil && c.Reason == reason, fmt.Sprintf("%+v", l.Items[0].Status)
	}, client.InNamespace(namespace))
}

// befall lets the same happen to the instances of machines.
func (m *machinist) befall(fault simcloud.InstanceFaultKind, machines ...v1beta1.Machine) {
	m.t.Helper()
	for i := range machines {
		if _, err := m.cloud.AddInstanceFault(context.Background(), m.instanceOf(&machines[i]).ID,
			simcloud.InstanceFault{Kind: fault}); err != nil {
			m.t.Fatalf("%s of machine %s: %v", fault, machines[i].Name, err)
		}
	}
}

// noticed waits until the target cluster takes the nodes of machines for silent, and returns since when it does.
func (m *machinist) noticed(machines ...v1beta1.Machine) []time.Time {
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

// silentFor waits until the nodes of all machines are silent for a time.
func (m *machinist) silentFor(d time.Duration, machines ...v1beta1.Machine) {
	m.t.Helper()
	since := slices.MaxFunc(m.noticed(machines...), time.Time.Compare)
	eventually(m.t, fmt.Sprintf("%d nodes are silent for %s", len(machines), d), func() (bool, string) {
		return time.Since(since) >= d, since.String()
	})
}

// unchanged fails the test if the machines are others, or one of them must be replaced.
func (m *machinist) unchanged(machines []v1beta1.Machine) {
	m.t.Helper()
	list := &v1beta1.MachineList{}
	if err := m.control.List(context.Background(), list, client.InNamespace(namespace)); err != nil {
		m.t.Fatal(err)
	}
	if !slices.EqualFunc(machines, list.Items, func(a, b v1beta1.Machine) bool {
		return a.UID == b.UID && b.DeletionTimestamp.IsZero() &&
			!meta.IsStatusConditionTrue(b.Status.Conditions, v1beta1.ConditionRemediationRequested)
	}) {
		m.t.Fatalf("the machines are other ones:\n%s\nand before:\n%s", describe(list.Items), describe(machines))
	}
}

// replaced waits until all machines run, one of them in the place of another that is gone, and returns them.
func (m *machinist) replaced(before []v1beta1.Machine, victim v1beta1.Machine) []v1beta1.Machine {
	m.t.Helper()
	m.await("the end of machine "+victim.Name, func(machines []v1beta1.Machine) bool {
		return !slices.ContainsFunc(machines, func(n v1beta1.Machine) bool { return n.UID == victim.UID })
	})
	after := m.running(len(before))
	for i := range before {
		if uid := before[i].UID; uid != victim.UID && !slices.ContainsFunc(after, func(n v1beta1.Machine) bool {
			return n.UID == uid
		}) {
			m.t.Fatalf("machine %s was replaced as well", before[i].Name)
		}
	}
	return after
}

// reported is an event.
type reported struct {
	at   time.Time
	note string
}

// markOf returns the event of a machine's mark.
func (m *machinist) markOf(machine types.UID) reported {
	m.t.Helper()
	return m.lastEvent(func(e corev1.Event) bool {
		return e.InvolvedObject.UID == machine && e.Reason == v1beta1.ConditionRemediationRequested
	})
}

// reportedLast returns the last event of a check with a reason.
func (m *machinist) reportedLast(reason string) time.Time {
	m.t.Helper()
	return m.lastEvent(func(e corev1.Event) bool {
		return e.InvolvedObject.Kind == "MachineHealthCheck" &&
			e.Reason == reason
	}).at
}

func (m *machinist) lastEvent(wanted func(corev1.Event) bool) (last reported) {
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
				last = reported{at, e.Message}
			}
		}
		return !last.at.IsZero(), strings.Join(all, " ")
	})
	return last
}
