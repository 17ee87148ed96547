package host

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

const (
	maxPods     = 110
	resourceGPU = corev1.ResourceName("nvidia.com/gpu")
	// evictionMemoryMiB and evictionStoragePercent are the default reservations of kubelets.
	evictionMemoryMiB      = 100
	evictionStoragePercent = 10
	kubeletPort            = 10250

	labelBetaOS, labelBetaArch = "beta.kubernetes.io/os", "beta.kubernetes.io/arch"
	// annotationAttach means that a controller attaches volumes instead of the kubelet.
	annotationAttach = "volumes.kubernetes.io/controller-managed-attach-detach"
)

// isReady reports whether the Node is Ready. The result is false during the registration.
func (m *machine) isReady(now time.Time) bool {
	return m.registrationDone && now.Sub(m.registrationTime) >= time.Duration(m.spec.Settings.NodeReadyDelay)
}

// node returns the Node that the machine registers.
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
	if !m.isReady(now) {
		readiness = condition(corev1.NodeReady, corev1.ConditionFalse, "KubeletNotReady",
			"PLEG is not healthy: pleg has yet to be successful")
	}
	osImage := s.Image.OSImage
	if osImage == "" {
		osImage = s.Image.Name
	}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: s.Hostname, Labels: map[string]string{
			corev1.LabelHostname:   s.Hostname,
			corev1.LabelOSStable:   "linux",
			corev1.LabelArchStable: t.Architecture,
			labelBetaOS:            "linux",
			labelBetaArch:          t.Architecture,
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
				MachineID: strings.ReplaceAll(uuidOf(s.ID), "-", ""), SystemUUID: uuidOf(s.ID),
				BootID:        uuidOf(fmt.Sprint(s.ID, "/", s.Boots)),
				KernelVersion: "6.12.0-simulated", OSImage: osImage, ContainerRuntimeVersion: "simulated://1.0.0",
				KubeletVersion: m.boot.version, OperatingSystem: "linux", Architecture: t.Architecture,
			},
			Images:          m.imagesNow(),
			RuntimeHandlers: []corev1.NodeRuntimeHandler{handler(""), handler("runc")},
			Features:        &corev1.NodeFeatures{SupplementalGroupsPolicy: ptr.To(true)},
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
	return node
}

// uuidOf derives a text in the format of a UUID from its argument.
func uuidOf(of string) string {
	sum := sha256.Sum256([]byte(of))
	h := hex.EncodeToString(sum[:16])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// handler returns a runtime handler with the features of containerd with runc.
func handler(name string) corev1.NodeRuntimeHandler {
	return corev1.NodeRuntimeHandler{Name: name, Features: &corev1.NodeRuntimeHandlerFeatures{
		RecursiveReadOnlyMounts: ptr.To(true), UserNamespaces: ptr.To(false),
	}}
}

// Kubelets report at most maxImages images. All simulated images have the same size.
const (
	maxImages  = 50
	imageBytes = 10 << 20
)

// pull adds an image and reports whether it was missing.
func (m *machine) pull(image string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.images[image] {
		return false
	}
	if m.images == nil {
		m.images = map[string]bool{}
	}
	m.images[image] = true
	return true
}

func (m *machine) imagesNow() []corev1.ContainerImage {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []corev1.ContainerImage
	for _, name := range slices.Sorted(maps.Keys(m.images)) {
		if len(all) < maxImages {
			all = append(all, corev1.ContainerImage{Names: []string{name}, SizeBytes: imageBytes})
		}
	}
	return all
}
