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
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// An administrator stops, starts and reboots machines. The pods are evicted before, and the instances and the
// Nodes stay the same. The provider is killed while it stops an instance, and does not reboot the instance twice.
//
// Rules: power-stopped, power-running, power-recorded-first, power-deletion, reboot-once, reboot-steps,
// reboot-recorded-first.
func TestMachinesAreStoppedStartedAndRebooted(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{ProviderArgs: shortLease})
	processes := m.supervise(m.Provider)
	m.removeDelays()
	stopTime := simcloud.Duration(3 * time.Second)
	m.settings(simcloud.SettingsPatch{StopTime: &stopTime})
	m.createFleet(2, nil)
	before := m.awaitRunning(2)
	off, rebooted := before[0], before[1]
	boots := m.bootIDs()

	t.Log("stop: a budget delays the eviction, and the instance runs meanwhile")
	pod := m.protectedPod("web", off.Status.NodeRef.Name)
	m.setPowerState(off.Name, v1beta1.PowerStopped)
	m.awaitMachine(off.Name, "a drain that the budget blocks", func(o *v1beta1.Machine) bool {
		return blockedBy(o, pod.Name, "web") && hasReason(o, v1beta1.ConditionPowerStateReached, v1beta1.ReasonDraining)
	})
	m.wantInstanceState(off, simcloud.StateRunning)
	m.liftBudget("web")
	stopped := m.awaitStopped(off.Name)
	m.wantInstanceState(off, simcloud.StateStopped)
	m.wantSameNode(off, stopped, true)
	if m.pod(pod) != nil {
		t.Error("the instance was stopped, but its pod is left")
	}

	t.Log("another client starts the instance, which is stopped again")
	m.startInstance(off)
	m.awaitMachine(off.Name, "another stop", func(o *v1beta1.Machine) bool {
		return hasReason(o, v1beta1.ConditionPowerStateReached, v1beta1.ReasonShuttingDown)
	})
	m.awaitStopped(off.Name)

	t.Log("start")
	m.setPowerState(off.Name, v1beta1.PowerRunning)
	m.wantSameNode(off, m.awaitReady(off.Name), false)
	if after := m.bootIDs(); after[off.Status.NodeRef.UID] == boots[off.Status.NodeRef.UID] {
		t.Error("the stopped node has not booted again")
	}

	t.Log("reboot: a budget delays the eviction, and the provider is killed while the instance stops")
	pod = m.protectedPod("db", rebooted.Status.NodeRef.Name)
	contains(t, m.command("reboot", "machine/"+rebooted.Name), rebooted.Name)
	m.awaitMachine(rebooted.Name, "a drain that the budget blocks", func(o *v1beta1.Machine) bool {
		return blockedBy(o, pod.Name, "db") && hasReason(o, v1beta1.ConditionRebooted, v1beta1.ReasonDraining)
	})
	m.wantInstanceState(rebooted, simcloud.StateRunning)
	m.liftBudget("db")
	m.awaitMachine(rebooted.Name, "a reboot in progress", func(o *v1beta1.Machine) bool {
		return hasReason(o, v1beta1.ConditionRebooted, v1beta1.ReasonShuttingDown)
	})
	processes.crash(m.Provider)
	after := m.awaitMachine(rebooted.Name, "the end of the reboot", func(o *v1beta1.Machine) bool {
		return meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionRebooted) && isReady(o)
	})
	m.wantSameNode(rebooted, after, false)
	if m.pod(pod) != nil {
		t.Error("the instance was rebooted, but its pod is left")
	}
	if n := m.countBoots(rebooted); n != 1 {
		t.Errorf("the node has booted %d times, want 1", n)
	}

	t.Log("delete a stopped machine")
	m.setPowerState(off.Name, v1beta1.PowerStopped)
	m.awaitStopped(off.Name)
	m.wantInstances(t, 2, 1)
	m.scale(0)
	m.awaitNoMachines()
	m.wantNothingLeft(2)
}

// Without a target cluster, the list of instances shows that an instance is stopped. Machinist does not start it.
//
// Rules: stopped-instance-unhealthy, power-unmanaged.
func TestInstanceStoppedByAnotherClientIsNotAvailable(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{NoTarget: true, ProviderArgs: []string{"--orphan-check-period=1s"}})
	m.removeDelays()
	m.createFleet(2, plainUserData)
	victim := m.awaitAvailable(2)[0]
	m.stopInstance(victim)
	m.awaitMachine(victim.Name, "a machine that is not Ready", func(o *v1beta1.Machine) bool {
		return hasReason(o, v1beta1.ConditionReady, v1beta1.ReasonInstanceStopped)
	})
	m.awaitDeployment("one available machine", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.AvailableReplicas == 1
	})
	contains(t, m.command("why", "machine/"+victim.Name), "stopped")
	m.wantInstanceState(victim, simcloud.StateStopped)
	m.startInstance(victim)
	m.awaitAvailable(2)
	m.wantInstances(t, 2, 2)
}

// A hibernation stops all machines after their pods were evicted. A budget of the machines does not delay this.
// New machines are created after the hibernation. A group of the cluster-autoscaler cannot be hibernated.
//
// Rules: hibernation-stops-machines, hibernation-waits, hibernation-scale-down, hibernation-ends,
// hibernation-reported, hibernation-not-autoscaled.
func TestDeploymentHibernatesAndWakes(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(3, nil)
	before := m.awaitRunning(3)
	m.createBudget("none", "", intstr.FromInt32(0))
	m.awaitBudget("none", "a valid budget", isValid)
	pods := m.protectedPods("web", before[0].Status.NodeRef.Name, before[1].Status.NodeRef.Name,
		before[2].Status.NodeRef.Name)
	own := before[0].Name
	m.setPowerState(own, v1beta1.PowerStopped)

	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"hibernated":true}}`)
	m.await("three drains that the budget of the pods blocks", func(machines []v1beta1.Machine) bool {
		return len(machines) == 3 && !slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return !hasReason(&o, v1beta1.ConditionPowerStateReached, v1beta1.ReasonDraining) ||
				!hasReason(&o, v1beta1.ConditionDrained, v1beta1.ReasonBlockedByDisruptionBudget)
		})
	})
	m.wantInstances(t, 3, 3)
	m.liftBudget("web")
	// After several refusals, the next attempt to evict a pod follows after up to a minute.
	m.kubectl("wait", "md/workers", "--for=condition=Hibernated", "--timeout=5m")
	for i := range before {
		m.wantInstanceState(before[i], simcloud.StateStopped)
		if m.pod(&pods[i]) != nil {
			t.Errorf("pod %s is left on a stopped machine", pods[i].Name)
		}
	}

	t.Log("an autoscaled group cannot be hibernated, and a hibernated deployment cannot be autoscaled")
	m.apply(groupManifest("batch", "small", "0", "4"))
	for _, args := range [][]string{
		{"patch", "md/batch", "--type=merge", "-p", `{"spec":{"hibernated":true}}`},
		{"annotate", "md/workers", groupPrefix + "min-size=0", groupPrefix + "max-size=4"},
	} {
		out, err := m.tryKubectl(args...)
		if err == nil || !strings.Contains(out, "spec.hibernated") {
			t.Errorf("kubectl %v: got %v: %s, want an error that names spec.hibernated", args, err, out)
		}
	}
	m.kubectl("delete", "md/batch")

	t.Log("scale up, start a machine by hand, and wake up")
	m.scale(4)
	m.setPowerState(before[1].Name, v1beta1.PowerRunning)
	m.awaitMachine(before[1].Name, "a machine that is to be stopped again", func(o *v1beta1.Machine) bool {
		return o.Spec.PowerState == v1beta1.PowerStopped
	})
	m.awaitStopped(before[1].Name)
	m.awaitDeployment("a processed change of the replicas", func(d *v1beta1.MachineDeployment) bool {
		return d.Status.ObservedGeneration == d.Generation
	})
	m.wantInstances(t, 3, 0)
	m.kubectl("patch", "md/workers", "--type=merge", "-p", `{"spec":{"hibernated":false}}`)
	after := m.await("three running machines and a stopped one", func(machines []v1beta1.Machine) bool {
		return len(machines) == 4 && !slices.ContainsFunc(machines, func(o v1beta1.Machine) bool {
			return o.Name == own && !isStopped(&o) || o.Name != own && !isReady(&o)
		})
	})
	for i := range before {
		j := slices.IndexFunc(after, func(o v1beta1.Machine) bool { return o.UID == before[i].UID })
		if j < 0 {
			t.Fatalf("machine %s was replaced", before[i].Name)
		}
		m.wantSameNode(before[i], &after[j], before[i].Name == own)
	}
	m.wantInstances(t, 4, 3)
}

func (m *machinist) setPowerState(name string, state v1beta1.PowerState) {
	m.t.Helper()
	m.change(name, func(o *v1beta1.Machine) { o.Spec.PowerState = state })
}

func hasReason(o *v1beta1.Machine, kind, reason string) bool {
	c := meta.FindStatusCondition(o.Status.Conditions, kind)
	return c != nil && c.Status == metav1.ConditionFalse && c.Reason == reason
}

func isStopped(o *v1beta1.Machine) bool {
	return o.Status.Phase == v1beta1.MachineStopped && o.Status.Instance.State == v1beta1.InstanceStopped &&
		meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionPowerStateReached)
}

func isReady(o *v1beta1.Machine) bool {
	return o.Status.Phase == v1beta1.MachineRunning &&
		meta.IsStatusConditionTrue(o.Status.Conditions, v1beta1.ConditionReady)
}

func (m *machinist) awaitStopped(name string) *v1beta1.Machine {
	m.t.Helper()
	return m.awaitMachine(name, "machine "+name+" to be stopped", isStopped)
}

func (m *machinist) awaitReady(name string) *v1beta1.Machine {
	m.t.Helper()
	return m.awaitMachine(name, "machine "+name+" to be Ready", isReady)
}

func (m *machinist) awaitDeployment(what string, done func(*v1beta1.MachineDeployment) bool) {
	m.t.Helper()
	env.Await(m.t, m.control, &v1beta1.MachineDeploymentList{}, what,
		func(l *v1beta1.MachineDeploymentList) (bool, string) {
			return len(l.Items) == 1 && done(&l.Items[0]), fmt.Sprintf("%+v", l.Items)
		}, client.InNamespace(namespace))
}

func (m *machinist) wantInstanceState(of v1beta1.Machine, want simcloud.InstanceState) {
	m.t.Helper()
	if r := m.instanceOf(&of); r.ProviderID != of.Spec.ProviderID || r.State != want {
		m.t.Errorf("machine %s: got instance %s in state %s, want %s in state %s", of.Name, r.ProviderID, r.State,
			of.Spec.ProviderID, want)
	}
}

// wantSameNode requires that a machine still has its instance and its Node. Whether the Node is cordoned may
// change shortly after the machine has become Ready.
func (m *machinist) wantSameNode(before v1beta1.Machine, after *v1beta1.Machine, cordoned bool) {
	m.t.Helper()
	if after.UID != before.UID || after.Spec.ProviderID != before.Spec.ProviderID ||
		m.instanceOf(after).ProviderID != before.Spec.ProviderID {
		m.t.Errorf("machine %s has instance %s, before %s", before.Name, after.Spec.ProviderID, before.Spec.ProviderID)
	}
	what := fmt.Sprintf("the node of machine %s is cordoned: %t", before.Name, cordoned)
	eventually(m.t, what, func() (bool, string) {
		node := m.node(after)
		if node.UID != before.Status.NodeRef.UID {
			m.t.Fatalf("node %s has the UID %s, before %s", node.Name, node.UID, before.Status.NodeRef.UID)
		}
		return node.Spec.Unschedulable == cordoned && !hasTaint(node, corev1.TaintNodeOutOfService), fmt.Sprint(node.Spec)
	})
}

func hasTaint(node *corev1.Node, key string) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == key })
}

func (m *machinist) bootIDs() map[types.UID]string {
	m.t.Helper()
	list := &corev1.NodeList{}
	if err := m.target.List(context.Background(), list); err != nil {
		m.t.Fatal(err)
	}
	ids := map[types.UID]string{}
	for i := range list.Items {
		ids[list.Items[i].UID] = list.Items[i].Status.NodeInfo.BootID
	}
	return ids
}

// countBoots returns how often the kubelet has reported another boot of a Node that existed before.
func (m *machinist) countBoots(of v1beta1.Machine) (n int) {
	m.t.Helper()
	list := &corev1.EventList{}
	if err := m.target.List(context.Background(), list); err != nil && !apierrors.IsNotFound(err) {
		m.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.InvolvedObject.Kind == "Node" && e.InvolvedObject.Name == of.Status.NodeRef.Name && e.Reason == "Rebooted" {
			n += int(max(e.Count, 1))
		}
	}
	return n
}

// stopInstance stops an instance as another client of the cloud.
func (m *machinist) stopInstance(of v1beta1.Machine) {
	m.t.Helper()
	c, err := m.CloudClient()
	if err == nil {
		_, err = c.StopInstance(context.Background(), m.instanceOf(&of).ID, simcloud.StopInstanceRequest{Force: true})
	}
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *machinist) startInstance(of v1beta1.Machine) {
	m.t.Helper()
	c, err := m.CloudClient()
	if err == nil {
		_, err = c.StartInstance(context.Background(), m.instanceOf(&of).ID)
	}
	if err != nil {
		m.t.Fatal(err)
	}
}
