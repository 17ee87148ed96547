package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/simcloud"
)

func (c *cluster) wantCloudFields(t testing.TB, name string) (node *corev1.Node) {
	t.Helper()
	eventually(t, func() error {
		var err error
		if node, err = c.node(t, name); err == nil && node.Spec.ProviderID == "" {
			err = errors.New("the node has no provider ID")
		}
		return err
	})
	return node
}

// TestNodeRegistrationOrder checks the order of the writes for a new Node. A kubelet of v1.36 creates the Lease one
// interval after the Node. The cloud controller acts after the registration.
func TestNodeRegistrationOrder(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	changes, err := c.kube.CoreV1().Nodes().Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=steps"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	p.create("steps", c.userDataWith(token, c.cp.CA(), 20))
	first := (<-changes.ResultChan()).Object.(*corev1.Node)
	if first.Spec.ProviderID != "" || first.Labels[corev1.LabelTopologyZone] != "" || readiness(first) != corev1.ConditionFalse {
		t.Errorf("the kubelet registers with provider ID %q, labels %v and Ready=%s", first.Spec.ProviderID, first.Labels,
			readiness(first))
	}
	leases := c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	node := c.wantCloudFields(t, "steps")
	cloudFieldsAt := lastWriteOf(t, node, "f:providerID")
	csi, err := c.kube.StorageV1().CSINodes().Get(t.Context(), "steps", metav1.GetOptions{})
	if err != nil || len(csi.OwnerReferences) != 1 || csi.OwnerReferences[0].UID != node.UID ||
		!strings.Contains(csi.Annotations["storage.alpha.kubernetes.io/migrated-plugins"], "kubernetes.io/azure-disk") {
		t.Errorf("the CSINode is %+v, %v", csi, err)
	}
	eventually(t, func() error {
		lease, err := leases.Get(t.Context(), "steps", metav1.GetOptions{})
		if after := lease.CreationTimestamp.Sub(node.CreationTimestamp.Time).Seconds(); err == nil && after < 4 {
			t.Errorf("the Lease was created %v s after the Node", after)
		}
		if err == nil && lease.CreationTimestamp.Before(cloudFieldsAt) { // in whole seconds
			t.Errorf("the Lease was created at %s, and the cloud controller wrote at %s", lease.CreationTimestamp, cloudFieldsAt)
		}
		return err
	})
	c.wantEvents(t, "default", "steps", "Starting", "NodeHasSufficientMemory", "NodeHasNoDiskPressure",
		"NodeHasSufficientPID", "NodeAllocatableEnforced", "NodeReady")
}

// lastWriteOf returns the time of the last write by the field manager that owns a field of a Node.
func lastWriteOf(t testing.TB, node *corev1.Node, field string) *metav1.Time {
	t.Helper()
	for _, entry := range node.ManagedFields {
		if strings.Contains(string(entry.FieldsV1.Raw), field) {
			return entry.Time
		}
	}
	t.Fatalf("no manager owns %s: %+v", field, node.ManagedFields)
	return nil
}

func (c *cluster) wantEvents(t testing.TB, namespace, name string, reasons ...string) {
	t.Helper()
	eventually(t, func() error {
		list, err := c.kube.CoreV1().Events(namespace).List(t.Context(),
			metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		var got []string
		for _, e := range list.Items {
			if e.Source.Component == "kubelet" {
				got = append(got, e.Reason)
			}
		}
		for _, reason := range reasons {
			if !slices.Contains(got, reason) {
				return fmt.Errorf("the events about %s are %v", name, got)
			}
		}
		return nil
	})
}

// TestPodStatusReports checks every pod status that a kubelet of v1.36 reports, from the binding of the pod to its end.
func TestPodStatusReports(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	// A kubelet reports only the last of several changes in quick succession, even on a busy host.
	slow := simcloud.Duration(4 * time.Second)
	if _, err := p.admin.PatchSettings(t.Context(),
		simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{PodStartTime: &slow}}); err != nil {
		t.Fatal(err)
	}
	token, _ := c.token(t)
	p.create("reports", c.userData(token))
	c.wantReady(t, "reports", corev1.ConditionTrue)
	pods := c.kube.CoreV1().Pods("default")
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	changes, err := pods.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=reported"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	pod := c.pod("reported", "reports", simcloud.AnnotationStopAfter, "500ms")
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var reports []string
	for event := range changes.ResultChan() {
		pod := event.Object.(*corev1.Pod)
		report := fmt.Sprintf("%s observed=%d sandbox=%s", phaseOf(pod), pod.Status.ObservedGeneration, sandboxOf(pod))
		if len(reports) == 0 || reports[len(reports)-1] != report {
			reports = append(reports, report)
		}
		if report == "Running ready observed=1 sandbox=True" {
			if err := pods.Delete(t.Context(), "reported", metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if event.Type == watch.Deleted {
			break
		}
	}
	want := []string{
		"Pending observed=0 sandbox=", "Pending observed=1 sandbox=False", "Pending observed=1 sandbox=True",
		"Running ready observed=1 sandbox=True", "Running ready observed=2 sandbox=True",
		"Succeeded observed=2 sandbox=False",
	}
	if !slices.Equal(reports, want) {
		t.Errorf("got  %s\nwant %s", strings.Join(reports, "; "), strings.Join(want, "; "))
	}
	c.wantEvents(t, "default", "reported", "Pulling", "Pulled", "Created", "Started", "Killing")
	eventually(t, func() error {
		node, err := c.node(t, "reports")
		if err == nil && len(node.Status.Images) != 1 {
			err = fmt.Errorf("the node has the images %v", node.Status.Images)
		}
		return err
	})
}

func sandboxOf(pod *corev1.Pod) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReadyToStartContainers {
			return condition.Status
		}
	}
	return ""
}

// TestDeletedNodeOnlyReturnsAfterRestart checks that a kubelet registers its Node only when the kubelet starts.
func TestDeletedNodeOnlyReturnsAfterRestart(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	inst := p.create("erased", c.userData(token))
	node := c.wantReady(t, "erased", corev1.ConditionTrue)
	c.deleteNode(t, "erased")
	// The Lease is deleted with the Node, so the heartbeat fails.
	p.wantConsole(inst.ID, `heartbeat: HTTP 404 Not Found: nodes "erased" not found`)
	if _, err := c.node(t, "erased"); !apierrors.IsNotFound(err) {
		t.Errorf("node: %v", err)
	}
	p.applyFault(inst.ID, simcloud.FaultSilent)
	p.applyFault(inst.ID, simcloud.FaultRecovers)
	if again := c.wantCloudFields(t, "erased"); again.UID == node.UID || again.Spec.ProviderID != inst.ProviderID {
		t.Errorf("node: %+v", again)
	}

	if _, err := p.admin.PatchSettings(t.Context(),
		simcloud.SettingsPatch{Host: &simcloud.HostSettingsPatch{Reregister: ptr.To(true),
			NoCloudController: ptr.To(true)}}); err != nil {
		t.Fatal(err)
	}
	p.applyFault(inst.ID, simcloud.FaultSilent)
	p.applyFault(inst.ID, simcloud.FaultRecovers)
	p.wantConsole(inst.ID, "node erased exists already")
	c.deleteNode(t, "erased")
	if again := c.wantReady(t, "erased", corev1.ConditionTrue); again.Spec.ProviderID != "" {
		t.Errorf("providerID is %q", again.Spec.ProviderID)
	}
}

// deleteNode deletes a Node and its Lease. A Node without finalizers is gone at once, but a kubelet may create another
// Node.
func (c *cluster) deleteNode(t testing.TB, name string) {
	t.Helper()
	if err := c.kube.CoreV1().Nodes().Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}
