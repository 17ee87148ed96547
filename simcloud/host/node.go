package host

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"machinist.dev/machinist/simcloud"
)

const (
	maxPods     = 110
	resourceGPU = corev1.ResourceName("nvidia.com/gpu")
	// Kubelets keep these back by default, for when a node runs full.
	evictionMemoryMiB      = 100
	evictionStoragePercent = 10
	kubeletPort            = 10250

	labelBetaOS, labelBetaArch = "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
	// annotationAttach says that the controller attaches volumes, not the kubelet.
	annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// register makes the machine's Node or, if there is one of its name, takes it
// over as a kubelet does: labels and status become the machine's, what else is
// on it stays.
func (m *machine) register(ctx context.Context) error {
	now := m.clock.Now()
	m.registered, m.settled = now, false
	wanted := m.node(now)
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node, err := m.conn.core.Nodes().Create(call, wanted, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		former, err := m.conn.core.Nodes().Get(call, m.spec.Hostname, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if node, err = m.syncNode(ctx, true); err != nil {
			return err
		}
		if boot := former.Status.NodeInfo.BootID; boot != "" && boot != wanted.Status.NodeInfo.BootID {
			m.printf("kubelet: node %s has been rebooted", node.Name)
			m.mu.Lock()
			m.rebooted = true
			m.mu.Unlock()
		}
		m.printf("kubelet: node %s was there already", node.Name)
		if node.Spec.ProviderID != "" && node.Spec.ProviderID != m.spec.ProviderID {
			m.printf("kubelet: node %s says that it is %s", node.Name, node.Spec.ProviderID)
		}
	case err != nil:
		return err
	default:
		m.printf("kubelet: registered node %s", node.Name)
	}
	m.settled = true
	m.mu.Lock()
	m.nodeUID = node.UID
	m.mu.Unlock()
	m.report(simcloud.HostJoined, "")
	return nil
}

// syncNode brings the existing Node's labels and status up to date, and its
// heartbeat too if that must be reported.
func (m *machine) syncNode(ctx context.Context, report bool) (*corev1.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	o := metav1.GetOptions{}
	if !report {
		o.ResourceVersion = "0" // from the server's cache: this is only a check
	}
	node, err := m.conn.core.Nodes().Get(ctx, m.spec.Hostname, o)
	if err != nil {
		return nil, fmt.Errorf("read node: %w", err)
	}
	next := updated(node, m.node(m.clock.Now()), report)
	if maps.Equal(node.Labels, next.Labels) && equality.Semantic.DeepEqual(node.Status, next.Status) {
		return node, nil
	}
	patch, err := difference(node, next)
	if err != nil {
		return nil, err
	}
	// The status endpoint takes labels too, and a kubelet needs it anyway.
	node, err = m.conn.core.Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch,
		metav1.PatchOptions{}, "status")
	if err != nil {
		return nil, fmt.Errorf("update node: %w", err)
	}
	return node, nil
}

// updated gives an existing Node the labels and the status of a fresh one. The
// heartbeat of a condition that is as it should be counts only if it must be
// reported.
func updated(existing, fresh *corev1.Node, report bool) *corev1.Node {
	next := existing.DeepCopy()
	if next.Labels == nil {
		next.Labels = map[string]string{}
	}
	maps.Copy(next.Labels, fresh.Labels)
	next.Status.Capacity, next.Status.Allocatable = fresh.Status.Capacity, fresh.Status.Allocatable
	next.Status.Addresses, next.Status.NodeInfo = fresh.Status.Addresses, fresh.Status.NodeInfo
	next.Status.DaemonEndpoints = fresh.Status.DaemonEndpoints
	for _, condition := range fresh.Status.Conditions {
		setCondition(&next.Status, condition, report)
	}
	return next
}

// difference is the patch from one Node to the next.
func difference(node, next *corev1.Node) ([]byte, error) {
	var data [2][]byte
	for i, n := range []*corev1.Node{node, next} {
		var err error
		if data[i], err = json.Marshal(n); err != nil {
			return nil, fmt.Errorf("encode node: %w", err)
		}
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(data[0], data[1], corev1.Node{})
	if err != nil {
		return nil, fmt.Errorf("compare nodes: %w", err)
	}
	return patch, nil
}

// setCondition replaces a condition. The time of transition stays if it is
// none.
func setCondition(status *corev1.NodeStatus, condition corev1.NodeCondition, report bool) {
	for i, old := range status.Conditions {
		if old.Type != condition.Type {
			continue
		}
		if old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
			if !report && old.Reason == condition.Reason && old.Message == condition.Message {
				condition.LastHeartbeatTime = old.LastHeartbeatTime
			}
		}
		status.Conditions[i] = condition
		return
	}
	status.Conditions = append(status.Conditions, condition)
}

// ready shows whether the node is. It never is when it registers, and may take
// a while after that.
func (m *machine) ready(now time.Time) bool {
	return m.settled && now.Sub(m.registered) >= time.Duration(m.spec.Settings.NodeReadyDelay)
}

// node is the machine as it registers.
func (m *machine) node(now time.Time) *corev1.Node {
	s, t := m.spec, m.spec.Type
	capacity := corev1.ResourceList{
		corev1.ResourceCPU:              *resource.NewQuantity(int64(t.CPUs), resource.DecimalSI),
		corev1.ResourceMemory:           *resource.NewQuantity(t.MemoryMiB<<20, resource.BinarySI),
		corev1.ResourceEphemeralStorage: *resource.NewQuantity(t.EphemeralStorageGiB<<30, resource.BinarySI),
		corev1.ResourcePods:             *resource.NewQuantity(maxPods, resource.DecimalSI),
	}
	if t.GPUs > 0 {
		capacity[resourceGPU] = *resource.NewQuantity(int64(t.GPUs), resource.DecimalSI)
	}
	allocatable := maps.Clone(capacity)
	allocatable[corev1.ResourceMemory] = *resource.NewQuantity(max(0, t.MemoryMiB-evictionMemoryMiB)<<20,
		resource.BinarySI)
	storage := t.EphemeralStorageGiB << 30 * (100 - evictionStoragePercent) / 100
	allocatable[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(storage, resource.BinarySI)

	condition := func(kind corev1.NodeConditionType, status corev1.ConditionStatus, reason,
		message string) corev1.NodeCondition {
		return corev1.NodeCondition{
			Type: kind, Status: status, Reason: reason, Message: message,
			LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
		}
	}
	readiness := condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status")
	if !m.ready(now) {
		readiness = condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady",
			"PLEG is not healthy: pleg has yet to be successful")
	}
	osImage := s.Image.OSImage
	if osImage == "" {
		osImage = s.Image.Name
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Hostname, Labels: map[string]string{
			corev1.LabelHostname:           s.Hostname,
			corev1.LabelOSStable:           "linux",
			corev1.LabelArchStable:         t.Architecture,
			corev1.LabelInstanceTypeStable: t.Name,
			corev1.LabelTopologyRegion:     s.Region,
			corev1.LabelTopologyZone:       s.Zone,
			labelBetaOS:                    "linux",
			labelBetaArch:                  t.Architecture,
		}, Annotations: map[string]string{annotationAttach: "true"}},
		Spec: corev1.NodeSpec{Taints: m.boot.taints},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: allocatable,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: s.Address.String()},
				{Type: corev1.NodeHostName, Address: s.Hostname},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: kubeletPort}},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: strings.ReplaceAll(identifier(s.ID), "-", ""), SystemUUID: identifier(s.ID), BootID: identifier(fmt.Sprint(s.ID, "/", s.Boots)),
				KernelVersion: "6.12.0-simulated", OSImage: osImage, ContainerRuntimeVersion: "simulated://1.0.0",
				KubeletVersion: m.boot.version, OperatingSystem: "linux", Architecture: t.Architecture,
			},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory",
					"kubelet has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure",
					"kubelet has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID",
					"kubelet has sufficient PID available"),
				readiness,
			},
		},
	}
	maps.Copy(node.Labels, m.boot.labels)
	if !s.Settings.OmitProviderID {
		node.Spec.ProviderID = s.ProviderID
	}
	return node
}

// identifier makes something that looks like a UUID and always is the same.
func identifier(of string) string {
	sum := sha256.Sum256([]byte(of))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
