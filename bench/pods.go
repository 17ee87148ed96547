package main

import (
	"context"
	"fmt"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const podsPerNode = 500

// fill creates pods on nodes without machines. If a process cached all pods, these pods would increase its measured
// memory.
func fill(ctx context.Context, target *rest.Config, pods int) error {
	config := rest.CopyConfig(target)
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("create a client for the pods: %w", err)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for first := 0; first < pods; first += podsPerNode {
		node := fmt.Sprintf("filler-%d", first/podsPerNode)
		if _, err := kube.CoreV1().Nodes().Create(ctx, nodeOf(instance{node: node}, time.Now()),
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create node %s: %w", node, err)
		}
		for i := first; i < min(first+podsPerNode, pods); i++ {
			group.Go(func() error {
				_, err := kube.CoreV1().Pods(namespace).Create(ctx, podOf(fmt.Sprintf("filler-%d", i), node),
					metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("create pod %d: %w", i, err)
				}
				return nil
			})
		}
	}
	return group.Wait()
}

// podOf returns a pod of realistic size.
func podOf(name, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "filler",
			"pod-template-hash": "5d4f8c7b9"}},
		Spec: corev1.PodSpec{
			NodeName: node, AutomountServiceAccountToken: ptr.To(false),
			Containers: []corev1.Container{{
				Name: "main", Image: "registry.example.com/team/application:v1.2.3",
				Env: []corev1.EnvVar{{Name: "LOG_LEVEL", Value: "info"}, {Name: "UPSTREAM", Value: "https://upstream.example.com"}},
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("16Mi"),
				}},
			}},
		},
	}
}
