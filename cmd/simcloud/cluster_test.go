package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/simcloud"
)

func TestInstanceJoinsCluster(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	inst := p.create("joins", c.userData(token))
	c.wantReady(t, "joins", corev1.ConditionTrue)
	node := c.wantCloudFields(t, "joins")

	if node.Spec.ProviderID != inst.ProviderID {
		t.Errorf("providerID is %q, want %q", node.Spec.ProviderID, inst.ProviderID)
	}
	if !hasTaint(node, "example.com/uninitialized") {
		t.Errorf("taints are %+v", node.Spec.Taints)
	}
	for key, want := range map[string]string{
		corev1.LabelHostname: "joins", corev1.LabelInstanceTypeStable: "medium", corev1.LabelTopologyRegion: "sim-1",
		corev1.LabelTopologyZone: "sim-1b", corev1.LabelArchStable: "amd64", "example.com/pool": "blue",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if v := node.Status.NodeInfo.KubeletVersion; v != "v1.36.1" {
		t.Errorf("kubelet version is %s", v)
	}
	if got := fmt.Sprintf("%s %s %s", node.Status.Capacity.Cpu(), node.Status.Capacity.Memory(),
		node.Status.Capacity.Pods()); got != "4 16Gi 110" {
		t.Errorf("capacity is %s", got)
	}
	if node.Status.Addresses[0].Address != inst.PrivateIPs[0] {
		t.Errorf("addresses are %+v", node.Status.Addresses)
	}
	c.wantRenewal(t, "joins", time.Now())
	lease, err := c.kube.CoordinationV1().Leases(corev1.NamespaceNodeLease).Get(t.Context(), "joins", metav1.GetOptions{})
	if err != nil || len(lease.OwnerReferences) != 1 || lease.OwnerReferences[0].UID != node.UID ||
		*lease.Spec.LeaseDurationSeconds != 4 {
		t.Errorf("lease: %+v %v", lease, err)
	}
	requests := c.requestsFor(t, "joins")
	if len(requests) != 1 {
		t.Fatalf("got %d requests, want 1", len(requests))
	}
	if requests[0].Spec.Username != "system:bootstrap:"+token[:6] ||
		fmt.Sprint(requests[0].Spec.Usages) != "[digital signature client auth]" {
		t.Errorf("request by %s: %+v", requests[0].Spec.Username, requests[0].Spec.Usages)
	}
	eventually(t, func() error {
		got, err := p.client.GetInstance(t.Context(), inst.ID)
		if err == nil && (got.State != simcloud.StateRunning || got.Host.Phase != simcloud.HostJoined) {
			err = fmt.Errorf("instance is %s, host %+v", got.State, got.Host)
		}
		return err
	})
}

func (c *cluster) requestsFor(t testing.TB, name string) []certificatesv1.CertificateSigningRequest {
	t.Helper()
	list, err := c.kube.CertificatesV1().CertificateSigningRequests().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var found []certificatesv1.CertificateSigningRequest
	for _, r := range list.Items {
		if commonName(t, r) == "system:node:"+name {
			found = append(found, r)
		}
	}
	return found
}

func hasTaint(node *corev1.Node, key string) bool {
	for _, taint := range node.Spec.Taints {
		if taint.Key == key {
			return true
		}
	}
	return false
}

func TestWrongTokenDoesNotJoin(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	inst := p.create("stranger", c.userData("aaaaaa.bbbbbbbbbbbbbbbb"))
	p.wantConsole(inst.ID, "HTTP 401 Unauthorized")
	got, err := p.client.GetInstance(t.Context(), inst.ID)
	if err != nil || got.Host.Phase != simcloud.HostJoining || !strings.Contains(got.Host.Message, "401") {
		t.Errorf("host: %+v %v", got.Host, err)
	}
	if _, err := c.node(t, "stranger"); !apierrors.IsNotFound(err) {
		t.Errorf("node: %v", err)
	}
	if requests := c.requestsFor(t, "stranger"); len(requests) != 0 {
		t.Errorf("got %d requests, want 0", len(requests))
	}
	console, err := p.client.ConsoleOutput(t.Context(), inst.ID)
	if err != nil || strings.Contains(console, "bbbbbbbb") {
		t.Errorf("the console shows the token: %v\n%s", err, console)
	}
}

// TestUnverifiedServerGetsNoToken checks that a machine trusts only the CA in its user data.
func TestUnverifiedServerGetsNoToken(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	inst := p.create("careful", c.userDataWith(token, otherCA(t), 4))
	p.wantConsole(inst.ID, "certificate signed by unknown authority")
}

// TestPodRunsAndIsEvicted checks that an evicted pod reaches its final phase before it is deleted.
func TestPodRunsAndIsEvicted(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	p.create("worker", c.userData(token))
	c.wantReady(t, "worker", corev1.ConditionTrue)

	pods := c.kube.CoreV1().Pods("default")
	pod := c.pod("web", "worker", simcloud.AnnotationStopAfter, "300ms")
	changes, err := pods.Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=web"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	if _, err := pods.Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	running := c.wantPod(t, "web", "Running ready")
	if running.Status.PodIP == "" || running.Status.HostIP == "" || running.Status.StartTime == nil ||
		running.Spec.NodeName != "worker" {
		t.Errorf("status: %+v", running.Status)
	}
	if running.Status.PodIP == running.Status.HostIP {
		t.Error("the pod has the address of its node")
	}
	if err := pods.EvictV1(t.Context(), &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: "web"}}); err != nil {
		t.Fatal(err)
	}
	var last *corev1.Pod
	timeout := time.After(testTimeout)
	for gone := false; !gone; {
		select {
		case event := <-changes.ResultChan():
			last = event.Object.(*corev1.Pod)
			gone = event.Type == watch.Deleted
		case <-timeout:
			t.Fatalf("the pod was not deleted: %+v", last)
		}
	}
	if got := phaseOf(last); got != "Succeeded" || last.Status.ContainerStatuses[0].State.Terminated == nil ||
		last.UID != running.UID {
		t.Errorf("the deleted pod had the phase %s: %+v", got, last.Status)
	}
}

func TestPodsFollowTheirAnnotations(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	p.create("stage", c.userData(token))
	c.wantReady(t, "stage", corev1.ConditionTrue)
	for want, annotations := range map[string][]string{
		"Succeeded": {simcloud.AnnotationCompleteAfter, "100ms"},
		"Failed":    {simcloud.AnnotationCrashAfter, "100ms"},
		"Running":   {simcloud.AnnotationReadyAfter, "never"},
	} {
		name := strings.ToLower(want)
		pod := c.pod(name, "stage", annotations...)
		pod.Spec.RestartPolicy = corev1.RestartPolicyNever
		if _, err := c.kube.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.wantPod(t, name, want)
	}
	// A new pod must not be confused with a deleted pod of the same name.
	if err := c.kube.CoreV1().Pods("default").Delete(t.Context(), "running", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := c.kube.CoreV1().Pods("default").Create(t.Context(), c.pod("running", "stage"), metav1.CreateOptions{})
		return err
	})
	c.wantPod(t, "running", "Running ready")
}

func (c *cluster) pod(name, node string, annotations ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Annotations: map[string]string{}},
		Spec: corev1.PodSpec{
			NodeSelector:                 map[string]string{corev1.LabelHostname: node},
			AutomountServiceAccountToken: ptr.To(false),
			Containers:                   []corev1.Container{{Name: "c", Image: "example.com/c"}},
		},
	}
	for i := 0; i < len(annotations); i += 2 {
		pod.Annotations[annotations[i]] = annotations[i+1]
	}
	return pod
}

// phaseOf returns the phase of a pod, with the suffix " ready" if it is ready.
func phaseOf(pod *corev1.Pod) string {
	phase := string(pod.Status.Phase)
	for _, condition := range pod.Status.Conditions {
		if condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue {
			phase += " ready"
		}
	}
	return phase
}

func (c *cluster) wantPod(t testing.TB, name, phase string) (pod *corev1.Pod) {
	t.Helper()
	eventually(t, func() error {
		var err error
		if pod, err = c.kube.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{}); err == nil &&
			phaseOf(pod) != phase {
			err = fmt.Errorf("pod %s is %q, want %q: %+v", name, phaseOf(pod), phase, pod.Status)
		}
		return err
	})
	return pod
}

// TestSilentNodeBecomesUnknownAndRecovers checks that the node controller marks a node as unknown when its Lease is no
// longer renewed.
func TestSilentNodeBecomesUnknownAndRecovers(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, secret := c.token(t)
	inst := p.create("sleeper", c.userData(token))
	node := c.wantReady(t, "sleeper", corev1.ConditionTrue)
	c.wantRenewal(t, "sleeper", time.Now())
	if err := c.kube.CoreV1().Secrets("kube-system").Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	p.applyFault(inst.ID, simcloud.FaultSilent)
	c.wantReady(t, "sleeper", corev1.ConditionUnknown)
	got, err := p.client.GetInstance(t.Context(), inst.ID)
	if err != nil || got.State != simcloud.StateRunning || got.Host.Phase != simcloud.HostOff {
		t.Errorf("instance: %+v %v", got, err)
	}

	p.applyFault(inst.ID, simcloud.FaultRecovers)
	back := c.wantReady(t, "sleeper", corev1.ConditionTrue)
	if back.UID != node.UID || len(c.requestsFor(t, "sleeper")) != 1 {
		t.Error("the machine came back with another Node or another certificate")
	}
	if _, err := p.client.DeleteInstance(t.Context(), inst.ID); err != nil {
		t.Fatal(err)
	}
	c.wantReady(t, "sleeper", corev1.ConditionUnknown)
}

// TestNodesSurviveKilledProcess deletes the token before the restart, so that nodes must use their saved state.
func TestNodesSurviveKilledProcess(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, secret := c.token(t)
	inst := p.create("survivor", c.userData(token))
	node := c.wantReady(t, "survivor", corev1.ConditionTrue)
	if _, err := c.kube.CoreV1().Pods("default").Create(t.Context(), c.pod("kept", "survivor"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	remaining := c.wantPod(t, "kept", "Running ready")
	if err := c.kube.CoreV1().Secrets("kube-system").Delete(t.Context(), secret, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	p.restart(syscall.SIGKILL)
	c.wantRenewal(t, "survivor", time.Now())
	after := c.wantReady(t, "survivor", corev1.ConditionTrue)
	if after.UID != node.UID || after.Status.NodeInfo.BootID != node.Status.NodeInfo.BootID ||
		len(c.requestsFor(t, "survivor")) != 1 {
		t.Error("the node, its boot or its certificate is a new one")
	}
	still := c.wantPod(t, "kept", "Running ready")
	if still.UID != remaining.UID || still.Status.PodIP != remaining.Status.PodIP ||
		still.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("the pod changed: %+v", still.Status)
	}
	if got, err := p.client.GetInstance(t.Context(), inst.ID); err != nil || got.State != simcloud.StateRunning {
		t.Errorf("instance: %+v %v", got, err)
	}
}

// TestNodeRestoresItsStatus checks that the kubelet overwrites changes that other clients make to its conditions.
func TestNodeRestoresItsStatus(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	p.create("stubborn", c.userData(token))
	c.wantReady(t, "stubborn", corev1.ConditionTrue)
	wrong := `{"status":{"conditions":[{"type":"Ready","status":"False","reason":"Test"}]}}`
	node, err := c.kube.CoreV1().Nodes().Patch(t.Context(), "stubborn", types.StrategicMergePatchType, []byte(wrong),
		metav1.PatchOptions{}, "status")
	if err != nil {
		t.Fatal(err)
	}
	if got := readiness(node); got != corev1.ConditionFalse {
		t.Fatalf("the patch set Ready=%s", got)
	}
	c.wantReady(t, "stubborn", corev1.ConditionTrue)
}

func TestInPlaceUpdateChangesNode(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	inst := p.create("grows", c.userData(token))
	before := c.wantReady(t, "grows", corev1.ConditionTrue)
	if _, err := p.client.UpdateInstance(t.Context(), inst.ID, simcloud.UpdateInstanceRequest{Type: "large",
		KubeletVersion: "v1.36.2"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		node, err := c.node(t, "grows")
		if err != nil {
			return err
		}
		info := node.Status.NodeInfo
		if info.KubeletVersion != "v1.36.2" || node.Status.Capacity.Cpu().Value() != 16 ||
			node.Labels[corev1.LabelInstanceTypeStable] != "large" ||
			info.BootID == before.Status.NodeInfo.BootID || node.UID != before.UID {
			return fmt.Errorf("node is %+v", node.Status)
		}
		return nil
	})
}

func TestNodesSurviveAPIServerOutage(t *testing.T) {
	c, p := startCluster(t), startProcess(t)
	token, _ := c.token(t)
	p.create("patient", c.userData(token))
	c.wantReady(t, "patient", corev1.ConditionTrue)
	// The node controller removes the taint of a new node only once. If an outage breaks this request, the controller
	// retries at the next change of the Node, which may take minutes.
	c.wantSchedulable(t, "patient")
	if err := c.cp.StopAPIServer(); err != nil {
		t.Fatal(err)
	}
	waiting := p.create("waiting", c.userData(token))
	p.wantConsole(waiting.ID, "connection refused")
	if err := c.cp.StartAPIServer(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.wantRenewal(t, "patient", time.Now())
	c.wantReady(t, "patient", corev1.ConditionTrue)
	c.wantReady(t, "waiting", corev1.ConditionTrue)
	if _, err := c.kube.CoreV1().Pods("default").Create(t.Context(), c.pod("later", "patient"),
		metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	c.wantPod(t, "later", "Running ready")
}
