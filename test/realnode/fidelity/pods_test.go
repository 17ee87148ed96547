//go:build e2e && linux

package fidelity

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/simcloud"
)

// scenario describes a pod and how its container behaves. A real container runs a script with this behavior. A
// simulated container reads the behavior from an annotation.
type scenario struct {
	name, script      string
	annotation, value string
	restart           corev1.RestartPolicy
	grace             int64
}

func (p scenario) pod(node string) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: p.name + "-on-" + node,
		Annotations: map[string]string{p.annotation: p.value}}}
	container := corev1.Container{Name: "c", Image: "registry.test/pause:1", Command: []string{"/bin/sh", "-c", p.script}}
	for _, folder := range []string{"bin", "lib", "lib64", "usr"} {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: folder, VolumeSource: corev1.VolumeSource{
			HostPath: &corev1.HostPathVolumeSource{Path: "/" + folder}}})
		container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: folder, MountPath: "/" + folder,
			ReadOnly: true})
	}
	pod.Spec.NodeName, pod.Spec.RestartPolicy, pod.Spec.Containers = node, p.restart, []corev1.Container{container}
	pod.Spec.AutomountServiceAccountToken, pod.Spec.TerminationGracePeriodSeconds = ptr.To(false), &p.grace
	return pod
}

func (p scenario) podState(node string) func(client.Object) string {
	return func(o client.Object) string {
		pod, ok := o.(*corev1.Pod)
		if !ok || pod.Name != p.name+"-on-"+node {
			return ""
		}
		ready, containers := "", ""
		for _, c := range pod.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = fmt.Sprintf("ready %s(%s)", c.Status, c.Reason)
			}
		}
		for _, c := range pod.Status.ContainerStatuses {
			switch s := c.State; {
			case s.Running != nil:
				containers = "runs"
			case s.Waiting != nil:
				containers = "waits " + s.Waiting.Reason
			case s.Terminated != nil:
				containers = line("exited", s.Terminated.ExitCode, s.Terminated.Reason)
			}
			if last := c.LastTerminationState.Terminated; last != nil {
				containers = line(containers, "after", last.ExitCode, last.Reason)
			}
			containers = line(containers, "restarts", c.RestartCount)
		}
		ending := ""
		if pod.DeletionTimestamp != nil {
			ending = fmt.Sprint("ending in ", *pod.DeletionGracePeriodSeconds)
		}
		return line(pod.Status.Phase, ready, containers, ending, "acknowledged",
			pod.Status.ObservedGeneration == pod.Generation, pod.Finalizers)
	}
}

func (p scenario) create(t *testing.T, c *cluster, n node, wanted string, finalizers ...string) []string {
	t.Helper()
	pod := p.pod(n.name)
	pod.Finalizers = finalizers
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), p.pod(n.name), client.GracePeriodSeconds(0)) })
	return c.record.states(t, 0, p.podState(n.name), wanted)
}

func (p scenario) delete(t *testing.T, c *cluster, n node, wanted string) []string {
	t.Helper()
	from := c.record.count()
	if err := c.Delete(t.Context(), p.pod(n.name)); err != nil {
		t.Fatal(err)
	}
	return c.record.states(t, from, p.podState(n.name), wanted)
}

const (
	takesTwoSeconds = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done"
	neverEnds       = "trap '' TERM; while :; do sleep 0.1; done"
)

// The kubelet must report when a pod is bound, running and ready. After a client has deleted the pod, the kubelet must
// acknowledge the deletion, report the end of the containers, and remove the pod.
func TestPodRunsAndIsDeleted(t *testing.T) {
	p := scenario{"runs", takesTwoSeconds, simcloud.AnnotationStopAfter, "2s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return append(p.create(t, c, n, "ready True"), p.delete(t, c, n, "gone")...)
	})
}

// A pod that is killed after its grace period counts as failed.
func TestPodIsKilledAfterGracePeriod(t *testing.T) {
	p := scenario{"stubborn", neverEnds, simcloud.AnnotationStopAfter, "never", corev1.RestartPolicyAlways, 2}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return append(p.create(t, c, n, "ready True"), p.delete(t, c, n, "gone")...)
	})
}

// A pod with a finalizer outlives its containers. When the containers have ended, the grace period of such a pod is
// 0.
func TestPodWithFinalizer(t *testing.T) {
	p := scenario{"protected", takesTwoSeconds, simcloud.AnnotationStopAfter, "2s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		all := append(p.create(t, c, n, "ready True", "example.com/protected"), p.delete(t, c, n, "ending in 0")...)
		pod := p.pod(n.name)
		if err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata": {"finalizers": null}}`))); err != nil {
			t.Fatal(err)
		}
		return append(all, c.record.states(t, 0, p.podState(n.name), "gone")...)
	})
}

// A pod that ended remains until a client deletes it. After the deletion request, the pod is removed immediately,
// without a grace period.
func TestPodsEnd(t *testing.T) {
	for wanted, p := range map[string]scenario{
		"Succeeded ready": {"completes", "sleep 1", simcloud.AnnotationCompleteAfter, "1s", corev1.RestartPolicyNever, 30},
		"Failed ready":    {"fails", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s", corev1.RestartPolicyNever, 30},
	} {
		t.Run(p.name, func(t *testing.T) {
			compare(t, func(t *testing.T, c *cluster, n node) []string {
				return append(p.create(t, c, n, wanted), p.delete(t, c, n, "gone")...)
			})
		})
	}
}

// The first restart of a container is immediate. Later restarts are delayed.
func TestPodsRestart(t *testing.T) {
	p := scenario{"crashes", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string { return p.create(t, c, n, "restarts 2") })
}

// A pod that is deleted while its containers wait for a restart ends with the last state of these containers.
func TestPodsAreDeletedBeforeRestart(t *testing.T) {
	for waits, p := range map[string]scenario{
		"exited 0 Completed after 0": {"repeats", "sleep 1", simcloud.AnnotationCompleteAfter, "1s",
			corev1.RestartPolicyAlways, 30},
		"exited 1 Error after 1": {"retries", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s",
			corev1.RestartPolicyOnFailure, 30},
	} {
		t.Run(p.name, func(t *testing.T) {
			compare(t, func(t *testing.T, c *cluster, n node) []string {
				return append(p.create(t, c, n, waits), p.delete(t, c, n, "gone")...)
			})
		})
	}
}
