package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// hosts simulates the machines behind the instances: it registers a Ready node for each running instance.
type hosts struct {
	listener net.Listener
	socket   string
	kube     kubernetes.Interface // client of the target cluster, set by run
	up       chan instance
	working  sync.WaitGroup

	mu     sync.Mutex
	nodes  map[string]bool
	failed error
}

type instance struct{ providerID, node string }

// registrars is the number of nodes that register in parallel.
const registrars = 64

func newHosts(dir string) (*hosts, error) {
	h := &hosts{socket: filepath.Join(dir, "hosts.sock"), up: make(chan instance, 1<<16), nodes: map[string]bool{}}
	var err error
	if h.listener, err = net.Listen("unix", h.socket); err != nil {
		return nil, fmt.Errorf("listen for instances: %w", err)
	}
	h.working.Go(func() {
		for {
			conn, err := h.listener.Accept()
			if err != nil {
				return
			}
			h.working.Go(func() { h.receive(conn) })
		}
	})
	return h, nil
}

func (h *hosts) receive(conn net.Conn) {
	defer conn.Close()
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		words := strings.Fields(lines.Text())
		if len(words) != 3 {
			h.setError(fmt.Errorf("the cloud sent the invalid message %q", lines.Text()))
			continue
		}
		h.mu.Lock()
		if words[0] == "up" {
			h.nodes[words[2]] = true
		} else {
			delete(h.nodes, words[2])
		}
		h.mu.Unlock()
		if words[0] == "up" {
			h.up <- instance{words[1], words[2]}
		}
	}
}

func (h *hosts) run(ctx context.Context, target *rest.Config) error {
	config := rest.CopyConfig(target)
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	var err error
	if h.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("create a client for the hosts: %w", err)
	}
	for range registrars {
		h.working.Go(func() {
			for {
				select {
				case in := <-h.up:
					if _, err := h.kube.CoreV1().Nodes().Create(ctx, nodeOf(in, time.Now()), metav1.CreateOptions{}); err != nil &&
						ctx.Err() == nil {
						h.setError(fmt.Errorf("register node %s: %w", in.node, err))
					}
				case <-ctx.Done():
					return
				}
			}
		})
	}
	return nil
}

func (h *hosts) setError(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.failed == nil {
		h.failed = err
	}
}

func (h *hosts) err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.failed
}

func (h *hosts) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.nodes))
	for name := range h.nodes {
		names = append(names, name)
	}
	return names
}

// close closes the listener and waits for all goroutines. Before calling close, cancel the context that was passed to
// the method run, and stop the cloud.
func (h *hosts) close() {
	_ = h.listener.Close()
	h.working.Wait()
}

// nodeOf returns a Ready node of realistic size.
func nodeOf(in instance, now time.Time) *corev1.Node {
	at := metav1.NewTime(now)
	condition := func(t corev1.NodeConditionType, s corev1.ConditionStatus, reason, message string) corev1.NodeCondition {
		return corev1.NodeCondition{Type: t, Status: s, Reason: reason, Message: message, LastHeartbeatTime: at,
			LastTransitionTime: at}
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("16384Mi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: in.node, Labels: map[string]string{
			corev1.LabelHostname: in.node, corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
			corev1.LabelInstanceTypeStable: "small", corev1.LabelTopologyRegion: "bench-1", corev1.LabelTopologyZone: "bench-1a",
		}, Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"}},
		Spec: corev1.NodeSpec{ProviderID: in.providerID,
			Taints: []corev1.Taint{{Key: "machinist.dev/uninitialized", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity: capacity, Allocatable: capacity,
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"},
				{Type: corev1.NodeHostName, Address: in.node}},
			Conditions: []corev1.NodeCondition{
				condition(corev1.NodeMemoryPressure, corev1.ConditionFalse, "KubeletHasSufficientMemory",
					"kubelet has sufficient memory available"),
				condition(corev1.NodeDiskPressure, corev1.ConditionFalse, "KubeletHasNoDiskPressure",
					"kubelet has no disk pressure"),
				condition(corev1.NodePIDPressure, corev1.ConditionFalse, "KubeletHasSufficientPID",
					"kubelet has sufficient PID available"),
				condition(corev1.NodeReady, corev1.ConditionTrue, "KubeletReady", "kubelet is posting ready status"),
			},
			NodeInfo: corev1.NodeSystemInfo{
				MachineID: "0123456789abcdef0123456789abcdef", SystemUUID: "01234567-89ab-cdef-0123-456789abcdef",
				BootID:        "01234567-89ab-cdef-0123-456789abcdef",
				KernelVersion: "6.12.0", OSImage: "Benchmark", ContainerRuntimeVersion: "containerd://2.1.0",
				KubeletVersion:  "v1.36.3",
				OperatingSystem: "linux", Architecture: "amd64",
			},
		},
	}
}
