//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/examples"
	"machinist.dev/machinist/pkg/provider"
	"machinist.dev/machinist/simcloud"
	"machinist.dev/machinist/simcloud/driver"
)

// These classes complement the classes of the example. The simulated cloud changes an instance from small to medium
// while the instance runs, and to large with a restart of the instance. The cloud cannot change the type to gpu, and
// does not know the type of unknownClass.
const (
	mediumClass  = "medium"
	gpuClass     = "gpu"
	unknownClass = "unknown"
)

func TestStandaloneMachineIsUpdated(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createStandaloneMachine("hand")
	m.awaitRunning(1)
	first := m.awaitUpdated("hand", examples.SmallClass, "v1.36.3")
	instance := m.instanceOf(first)
	same := func(what string, class, instanceType, version string) *v1beta1.Machine {
		t.Helper()
		now := m.awaitUpdated("hand", class, version)
		r := m.instanceOf(now)
		if r.ID != instance.ID || now.Spec.ProviderID != first.Spec.ProviderID || now.LaunchAttempt() != 1 {
			t.Errorf("%s: got instance %s (%s, attempt %d), want %s", what, r.ID, now.Spec.ProviderID, now.LaunchAttempt(),
				instance.ID)
		}
		if r.Type != instanceType || r.State != simcloud.StateRunning || now.Status.Instance.Type != instanceType {
			t.Errorf("%s: got instance in state %s with type %s, reported as %s; want type %s", what, r.State, r.Type,
				now.Status.Instance.Type, instanceType)
		}
		if now.Status.NodeRef.UID != first.Status.NodeRef.UID {
			t.Errorf("%s: the machine has another node", what)
		}
		if op := now.Status.LastOperation; op == nil || op.Type != v1beta1.OperationUpdate ||
			op.State != v1beta1.OperationSucceeded {
			t.Errorf("%s: got last operation %+v, want a successful update", what, op)
		}
		return now
	}

	t.Log("live update in place, without an effect on the pods")
	pod := m.protectedPod("web", first.Status.NodeRef.Name)
	m.setClass("hand", mediumClass)
	same("live", mediumClass, "medium", "v1.36.3")
	if node := m.node(first); node.Spec.Unschedulable {
		t.Error("the node was cordoned for a live update")
	}
	if now := m.pod(pod); now == nil || !now.DeletionTimestamp.IsZero() {
		t.Error("the pod was evicted for a live update")
	}

	t.Log("update in place with a restart: the node is drained before, and back in service afterwards")
	m.setClass("hand", examples.LargeClass)
	blocked := m.awaitMachine("hand", "an update whose drain the budget blocks", func(m *v1beta1.Machine) bool {
		return blockedBy(m, pod.Name, "web") && isUpToDate(m, metav1.ConditionFalse, v1beta1.ReasonUpdating)
	})
	if blocked.Status.Phase != v1beta1.MachineUpdating || meta.IsStatusConditionTrue(blocked.Status.Conditions,
		v1beta1.ConditionReady) {
		t.Errorf("during the drain: got phase %s, want %s: %+v", blocked.Status.Phase, v1beta1.MachineUpdating,
			blocked.Status.Conditions)
	}
	if r := m.instanceOf(blocked); r.Type != "medium" || r.State != simcloud.StateRunning {
		t.Errorf("during the drain: got instance in state %s with type %s, want it unchanged", r.State, r.Type)
	}
	if !m.node(first).Spec.Unschedulable {
		t.Error("the node is drained but not cordoned")
	}
	m.liftBudget("web")
	same("restart", examples.LargeClass, "large", "v1.36.3")
	m.awaitInService("hand")
	if m.pod(pod) != nil {
		t.Error("the instance restarted while the pod was running")
	}

	t.Log("update of the version in place, up and down")
	for _, version := range []string{"v1.37.0", "v1.36.3"} {
		m.change("hand", func(m *v1beta1.Machine) { m.Spec.Version = version })
		same(version, examples.LargeClass, "large", version)
		m.awaitMachine("hand", "a node of version "+version, func(m *v1beta1.Machine) bool {
			return m.Status.Version == version
		})
		m.awaitInService("hand")
	}

	t.Log("refused update: the instance does not change, and serves")
	m.setClass("hand", unknownClass)
	refused := m.awaitMachine("hand", "a refused update", func(m *v1beta1.Machine) bool {
		return isUpToDate(m, metav1.ConditionFalse, v1beta1.ReasonUnsupportedChange)
	})
	if c := meta.FindStatusCondition(refused.Status.Conditions, v1beta1.ConditionUpToDate); !strings.Contains(c.Message,
		"no-such-type") {
		t.Errorf("condition UpToDate: got message %q, want one that names the type", c.Message)
	}
	if refused.Status.Phase != v1beta1.MachineRunning || !meta.IsStatusConditionTrue(refused.Status.Conditions,
		v1beta1.ConditionReady) {
		t.Errorf("refused update: got phase %s, want a Ready machine: %+v", refused.Status.Phase, refused.Status.Conditions)
	}
	if a := refused.Status.Applied; a.ClassName != examples.LargeClass {
		t.Errorf("refused update: got applied %+v, want class %s", a, examples.LargeClass)
	}
	m.setClass("hand", examples.LargeClass)
	m.awaitUpdated("hand", examples.LargeClass, "v1.36.3")

	t.Log("update by replacement of the instance, with the same Machine")
	pod = m.protectedPod("db", m.machine("hand").Status.NodeRef.Name)
	m.setClass("hand", gpuClass)
	blocked = m.awaitMachine("hand", "a replacement whose drain the budget blocks", func(m *v1beta1.Machine) bool {
		return blockedBy(m, pod.Name, "db") && isUpToDate(m, metav1.ConditionFalse, v1beta1.ReasonReplacing)
	})
	if l := blocked.Status.Launch; l == nil || l.Step != v1beta1.LaunchStepReplacing ||
		l.OldProviderID != first.Spec.ProviderID {
		t.Errorf("status.launch during the replacement: got %+v, want step %s with the old provider ID", l,
			v1beta1.LaunchStepReplacing)
	}
	if r := m.instanceOf(blocked); r.ID != instance.ID || r.State != simcloud.StateRunning {
		t.Errorf("during the drain: got instance %s in state %s, want %s running", r.ID, r.State, instance.ID)
	}
	m.liftBudget("db")
	replaced := m.awaitUpdated("hand", gpuClass, "v1.36.3")
	r := m.instanceOf(replaced)
	switch {
	case replaced.UID != first.UID:
		t.Error("the Machine itself was replaced")
	case r.ID == instance.ID || r.Type != "gpu":
		t.Errorf("got instance %s of type %s, want another one than %s of type gpu", r.ID, r.Type, instance.ID)
	case replaced.Spec.ProviderID != r.ProviderID || replaced.Spec.ProviderID == first.Spec.ProviderID:
		t.Errorf("got provider ID %s, want that of the new instance, %s; the old one was %s", replaced.Spec.ProviderID,
			r.ProviderID, first.Spec.ProviderID)
	case replaced.LaunchAttempt() != 2 || replaced.IsReplacing():
		t.Errorf("status.launch: got %+v, want attempt 2", replaced.Status.Launch)
	case replaced.Status.NodeRef.UID == first.Status.NodeRef.UID:
		t.Error("the machine still has the node of the old instance")
	}
	if node := m.node(replaced); node.Spec.ProviderID != r.ProviderID || node.Spec.Unschedulable {
		t.Errorf("node %s: got provider ID %s, unschedulable=%v; want %s, schedulable", node.Name, node.Spec.ProviderID,
			node.Spec.Unschedulable, r.ProviderID)
	}
	if nodes := m.nodes(m.target); len(nodes) != 1 {
		t.Errorf("got nodes %v, want only that of the new instance", nodes)
	}

	m.delete("hand")
	m.awaitNoMachines()
	m.wantNothingLeft(2)
	m.wantNeverTwoAtOnce()
	if nodes := m.nodes(m.target); len(nodes) != 0 {
		t.Errorf("nodes are left: %v", nodes)
	}
}

func (m *machinist) createStandaloneMachine(name string) {
	m.t.Helper()
	m.createFleet(0, nil)
	for class, instanceType := range map[string]string{mediumClass: "medium", gpuClass: "gpu",
		unknownClass: "no-such-type"} {
		m.create(&v1beta1.MachineClass{
			ObjectMeta: metav1.ObjectMeta{Name: class},
			Spec: v1beta1.MachineClassSpec{
				Provider: driver.Name, ProviderSpec: providerSpec(m.t, instanceType),
				CredentialsRef: &v1beta1.LocalRef{Name: examples.CredentialsSecret},
				UserDataRef:    &v1beta1.UserDataRef{Name: examples.UserDataSecret},
			},
		})
	}
	m.create(&v1beta1.Machine{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1beta1.MachineSpec{ClassRef: &v1beta1.LocalRef{Name: examples.SmallClass}, Version: "v1.36.3"},
	})
}

func (m *machinist) create(o client.Object) {
	m.t.Helper()
	o.SetNamespace(namespace)
	if err := m.control.Create(context.Background(), o, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		m.t.Fatalf("create %T %s: %v", o, o.GetName(), err)
	}
}

func providerSpec(t *testing.T, instanceType string) *runtime.RawExtension {
	t.Helper()
	raw, err := json.Marshal(driver.Spec{APIVersion: driver.APIVersion, Kind: driver.Kind, Region: "sim-1",
		InstanceType: instanceType, Image: "sim-os-1"})
	if err != nil {
		t.Fatal(err)
	}
	return &runtime.RawExtension{Raw: raw}
}

func (m *machinist) machine(name string) *v1beta1.Machine {
	m.t.Helper()
	machine := &v1beta1.Machine{}
	if err := m.control.Get(context.Background(), client.ObjectKey{Namespace: namespace, Name: name},
		machine); err != nil {
		m.t.Fatalf("read machine %s: %v", name, err)
	}
	return machine
}

func (m *machinist) change(name string, change func(*v1beta1.Machine)) {
	m.t.Helper()
	machine := m.machine(name)
	before := machine.DeepCopy()
	change(machine)
	if err := m.control.Patch(context.Background(), machine, client.MergeFrom(before)); err != nil {
		m.t.Fatalf("change machine %s: %v", name, err)
	}
}

func (m *machinist) setClass(name, class string) {
	m.t.Helper()
	m.change(name, func(m *v1beta1.Machine) { m.Spec.ClassRef.Name = class })
}

func (m *machinist) delete(name string) {
	m.t.Helper()
	if err := m.control.Delete(context.Background(), m.machine(name)); err != nil {
		m.t.Fatalf("delete machine %s: %v", name, err)
	}
}

func (m *machinist) awaitMachine(name, what string, done func(*v1beta1.Machine) bool) *v1beta1.Machine {
	m.t.Helper()
	is := func(machine v1beta1.Machine) bool { return machine.Name == name && done(&machine) }
	machines := m.await(what, func(machines []v1beta1.Machine) bool { return slices.ContainsFunc(machines, is) })
	return &machines[slices.IndexFunc(machines, is)]
}

func (m *machinist) awaitUpdated(name, class, version string) *v1beta1.Machine {
	m.t.Helper()
	return m.awaitMachine(name, fmt.Sprintf("machine %s of class %q and version %s", name, class, version),
		func(m *v1beta1.Machine) bool {
			a := m.Status.Applied
			return a != nil && a.ClassName == class && a.Version == version &&
				isUpToDate(m, metav1.ConditionTrue, v1beta1.ReasonUpToDate) &&
				m.Status.Phase == v1beta1.MachineRunning && meta.IsStatusConditionTrue(m.Status.Conditions, v1beta1.ConditionReady)
		})
}

func isUpToDate(m *v1beta1.Machine, status metav1.ConditionStatus, reason string) bool {
	c := meta.FindStatusCondition(m.Status.Conditions, v1beta1.ConditionUpToDate)
	return c != nil && c.Status == status && c.Reason == reason
}

func (m *machinist) awaitInService(name string) {
	m.t.Helper()
	eventually(m.t, "the node is back in service", func() (bool, string) {
		node := m.node(m.machine(name))
		_, excluded := node.Labels[v1beta1.NodeLabelExcludeFromLoadBalancers]
		return !node.Spec.Unschedulable && !excluded, fmt.Sprintf("unschedulable=%v, excluded from load balancers=%v",
			node.Spec.Unschedulable, excluded)
	})
}

func (m *machinist) node(machine *v1beta1.Machine) *corev1.Node {
	m.t.Helper()
	node := &corev1.Node{}
	if err := m.target.Get(context.Background(), client.ObjectKey{Name: machine.Status.NodeRef.Name}, node); err != nil {
		m.t.Fatalf("read the node of machine %s: %v", machine.Name, err)
	}
	return node
}

func (m *machinist) pod(pod *corev1.Pod) *corev1.Pod {
	m.t.Helper()
	now := &corev1.Pod{}
	err := m.target.Get(context.Background(), client.ObjectKeyFromObject(pod), now)
	if apierrors.IsNotFound(err) || err == nil && now.UID != pod.UID {
		return nil
	}
	if err != nil {
		m.t.Fatalf("read pod %s: %v", pod.Name, err)
	}
	return now
}

func (m *machinist) instanceOf(machine *v1beta1.Machine) simcloud.Record {
	m.t.Helper()
	var live []simcloud.Record
	for _, r := range m.instances() {
		if r.Tags[provider.TagMachineUID] == string(machine.UID) && r.State != simcloud.StateTerminated {
			live = append(live, r)
		}
	}
	if len(live) != 1 {
		m.t.Fatalf("machine %s: got %d live instances in the cloud, want 1", machine.Name, len(live))
	}
	return live[0]
}

func (m *machinist) wantNeverTwoAtOnce() {
	m.t.Helper()
	last := map[types.UID]simcloud.Record{}
	for _, r := range m.instances() {
		uid := types.UID(r.Tags[provider.TagMachineUID])
		if before, ok := last[uid]; ok && (before.TerminationTime == nil || r.LaunchTime.Before(*before.TerminationTime)) {
			m.t.Errorf("machine %s had two instances at once: %s, terminated at %v, and %s, launched at %s", uid, before.ID,
				before.TerminationTime, r.ID, r.LaunchTime)
		}
		last[uid] = r
	}
}
