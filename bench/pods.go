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

// podsPerNode is how many pods are on a node that has nothing to do with us.
const podsPerNode = 500

// fill makes pods on nodes that are unassigned machines, for the memory of who would keep all pods.
func fill(ctx context.Context, target *rest.Config, pods int) error {
	config := rest.CopyConfig(target)
	config.ContentType, config.QPS = "application/vnd.kubernetes.protobuf", -1
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make a client for the pods: %w", err)
	}
	makers, ctx := errgroup.WithContext(ctx)
	makers.SetLimit(64)
	for first := 0; first < pods; first += podsPerNode {
		node := fmt.Sprintf("filler-%d", first/podsPerNode)
		if _, err := kube.CoreV1().Nodes().Create(ctx, nodeOf(instance{node: node}, time.Now()),
			metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make node %s: %w", node, err)
		}
		for i := first; i < min(first+podsPerNode, pods); i++ {
			makers.Go(func() error {
				_, err := kube.CoreV1().Pods(namespace).Create(ctx, podOf(fmt.Sprintf("filler-%d", i), node),
					metav1.CreateOptions{})
				if err != nil {
					return fmt.Errorf("make pod %d: %w", i, err)
				}
				return nil
			})
		}
	}
	return makers.Wait()
}

// podOf is a pod with what most have: an owner's labels, environment, probes, resources.
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
