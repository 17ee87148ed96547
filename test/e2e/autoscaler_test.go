//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/devel/stack"
	"machinist.dev/machinist/test/env"
)

func groupManifest(name, class, smallest, largest string) string {
	return fmt.Sprintf(`
apiVersion: machinist.dev/v1beta1
kind: MachineDeployment
metadata:
  name: %[1]s
  annotations:
    machinist.dev/cluster-api-autoscaler-node-group-min-size: %[3]q
    machinist.dev/cluster-api-autoscaler-node-group-max-size: %[4]q
spec:
  replicas: 0
  selector: {matchLabels: {pool: %[1]s}}
  template:
    metadata: {labels: {pool: %[1]s}}
    spec:
      classRef: {name: %[2]s}
      version: v1.36.3
      node:
        labels: {example.com/pool: %[1]s}
        taints: [{key: dedicated, value: %[1]s, effect: NoSchedule}]
`, name, class, smallest, largest)
}

// An unmodified cluster-autoscaler with the chart's role scales groups from zero and back.
//
// Rules: capacity-of-empty-node-groups, empty-node-groups-report-unknown-capacity.
func TestAutoscalerScalesFromZeroAndBack(t *testing.T) {
	t.Parallel()
	m := start(t, stack.Options{})
	m.removeDelays()
	m.createFleet(0, nil)
	a := newAutoscaler(m)
	m.apply(classManifest("gpu", "gpu"))
	m.apply(groupManifest("batch", "small", "0", "4"))
	m.apply(groupManifest("gpus", "gpu", "0", "2"))
	m.apply(groupManifest("lost", "nowhere", "0", "4"))

	m.kubectl("wait", "md/lost", "--for=condition=ScalableFromZero=False", "--timeout=30s")
	contains(t, m.command("why", "md/lost"), "cannot scale the group up from zero", "MachineClass nowhere does not exist")
	a.await("only the groups whose class has a capacity", func(groups map[string]*nodeGroup) bool {
		return len(groups) == 2 && groups["batch"] != nil && groups["gpus"] != nil
	})

	t.Log("a malformed group, which would hide all others, is refused")
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte(groupManifest("bad", "small", "0", "four")), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := m.tryKubectl("apply", "-f", bad)
	if err == nil {
		t.Fatal(`the API server accepted the largest size "four"`)
	}
	contains(t, out, groupPrefix+"max-size", "four")
	a.validGroups()

	t.Log("change the class of an empty group")
	before := a.validGroups()["batch"]
	m.kubectl("patch", "md/batch", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"large"}}}}}`)
	a.await("the capacity of the other class", func(groups map[string]*nodeGroup) bool {
		now := groups["batch"]
		return now != nil && now.capacity.Cpu().Cmp(*before.capacity.Cpu()) > 0
	})

	t.Log("from zero to four, and two with GPUs")
	batch, gpus := a.validGroups()["batch"], a.validGroups()["gpus"]
	if gpu := gpus.capacity["nvidia.com/gpu"]; gpu.Value() != 1 {
		t.Errorf("got %d expected GPUs, want 1", gpu.Value())
	}
	a.increase(batch, 1)
	a.increase(batch, 3)
	a.increase(gpus, 2)
	m.awaitRunning(6)
	nodes := m.nodesOf("batch")
	for i := range nodes {
		batch.wantNode(t, &nodes[i])
	}
	withGPUs := m.nodesOf("gpus")
	for i := range withGPUs {
		gpus.wantNode(t, &withGPUs[i])
	}
	if len(nodes) != 4 || len(withGPUs) != 2 {
		t.Fatalf("got %d and %d nodes, want 4 and 2", len(nodes), len(withGPUs))
	}

	t.Log("back to zero, in the order in which the autoscaler names the nodes")
	for i := range nodes {
		a.remove(batch, &nodes[i])
		left := 6 - i - 1
		m.await(fmt.Sprintf("%d machines, without %s", left, nodes[i].Name), func(machines []v1beta1.Machine) bool {
			for j := range machines {
				if machines[j].Name == nodes[i].Annotations[v1beta1.NodeAnnotationMachine] {
					return false
				}
			}
			return len(machines) == left
		})
	}
	for i := range withGPUs {
		a.remove(gpus, &withGPUs[i])
	}
	m.awaitNoMachines()
	if groups := a.validGroups(); groups["batch"] == nil || a.size(groups["batch"]) != 0 {
		t.Error("the autoscaler no longer sees the empty group")
	}

	t.Log("without the policy, a malformed group is reported, and the others are kept up to date")
	m.withoutFleetPolicy()
	eventually(t, "the malformed group is accepted", func() (bool, string) {
		out, err := m.tryKubectl("apply", "-f", bad)
		return err == nil, out
	})
	if _, err := a.groups(); err == nil {
		t.Error("the autoscaler of this test reads groups next to a malformed one, unlike cluster-autoscaler")
	}
	contains(t, m.command("why", "md/bad"), "scales none of its groups", `"four" is not a number`)
	m.kubectl("patch", "md/batch", "--type=merge", "-p", `{"spec":{"template":{"spec":{"classRef":{"name":"small"}}}}}`)
	m.kubectl("delete", "md/bad")
	a.await("the capacity of the first class", func(groups map[string]*nodeGroup) bool {
		now := groups["batch"]
		return now != nil && now.capacity.Cpu().Cmp(*before.capacity.Cpu()) == 0
	})

	t.Log("requests that the role does not allow")
	_, err = a.objects.Resource(resourceOf("machineclasses")).List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("list classes as the autoscaler: got error %v, want Forbidden", err)
	}
	if err := a.objects.Resource(resourceOf("machinedeployments")).Namespace(namespace).Delete(t.Context(), "batch",
		metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("delete a deployment as the autoscaler: got error %v, want Forbidden", err)
	}
	unmarked := &unstructured.Unstructured{}
	unmarked.SetName("batch")
	if _, err := a.objects.Resource(resourceOf("machinedeployments")).Namespace(namespace).Update(t.Context(), unmarked,
		metav1.UpdateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("update a deployment as the autoscaler: got error %v, want Forbidden", err)
	}
}

func (a *autoscaler) await(what string, done func(map[string]*nodeGroup) bool) {
	a.t.Helper()
	eventually(a.t, "the autoscaler sees "+what, func() (bool, string) {
		groups := a.validGroups()
		var names []string
		for name := range groups {
			names = append(names, name)
		}
		return done(groups), strings.Join(names, ", ")
	})
}

func (m *machinist) nodesOf(pool string) []corev1.Node {
	m.t.Helper()
	of := client.MatchingLabels{"example.com/pool": pool}
	// The cloud controller adds its labels after the Node has registered.
	env.Await(m.t, m.target, &corev1.NodeList{}, "labels of the cloud controller", func(l *corev1.NodeList) (bool, string) {
		for _, node := range l.Items {
			if node.Labels[corev1.LabelInstanceTypeStable] == "" {
				return false, "missing on node " + node.Name
			}
		}
		return true, ""
	}, of)
	list := &corev1.NodeList{}
	if err := m.target.List(context.Background(), list, of); err != nil {
		m.t.Fatal(err)
	}
	return list.Items
}

func (m *machinist) withoutFleetPolicy() {
	m.t.Helper()
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: "fleet.machinist.dev"}}
	if err := m.control.Delete(context.Background(), binding); err != nil {
		m.t.Fatal(err)
	}
}
