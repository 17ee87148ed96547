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

// play is a pod that does something: in the real container by a script, in the other one by an annotation.
type play struct {
	name, script      string
	annotation, value string
	restart           corev1.RestartPolicy
	grace             int64
}

// pod is the play on a node. Its container has the shell of this machine.
func (p play) pod(node string) *corev1.Pod {
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

// shown describes what a kubelet reports of a pod.
func (p play) shown(node string) func(client.Object) string {
	return func(o client.Object) string {
		pod, is := o.(*corev1.Pod)
		if !is || pod.Name != p.name+"-on-"+node {
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

// make creates the pod on a node, and returns what it shows until the wanted state.
func (p play) make(t *testing.T, c *cluster, n node, wanted string, finalizers ...string) []string {
	t.Helper()
	pod := p.pod(n.name)
	pod.Finalizers = finalizers
	if err := c.Create(t.Context(), pod); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Delete(context.Background(), p.pod(n.name), client.GracePeriodSeconds(0)) })
	return c.record.shows(t, 0, p.shown(n.name), wanted)
}

// end deletes it, and returns what it shows until the wanted state.
func (p play) end(t *testing.T, c *cluster, n node, wanted string) []string {
	t.Helper()
	from := c.record.now()
	if err := c.Delete(t.Context(), p.pod(n.name)); err != nil {
		t.Fatal(err)
	}
	return c.record.shows(t, from, p.shown(n.name), wanted)
}

const (
	takesTwoSeconds = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done"
	never           = "trap '' TERM; while :; do sleep 0.1; done"
)

// A pod is reported when it is bound, when it runs and when it is ready. Its deletion is acknowledged, its end is
// reported, and then it is removed.
func TestAPodRunsAndIsDeleted(t *testing.T) {
	p := play{"runs", takesTwoSeconds, simcloud.AnnotationStopAfter, "2s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return append(p.make(t, c, n, "ready True"), p.end(t, c, n, "gone")...)
	})
}

// A pod that does not end by itself is killed when its grace is over, which counts as a failure.
func TestAPodThatIsKilled(t *testing.T) {
	p := play{"stubborn", never, simcloud.AnnotationStopAfter, "never", corev1.RestartPolicyAlways, 2}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		return append(p.make(t, c, n, "ready True"), p.end(t, c, n, "gone")...)
	})
}

// A pod that somebody protects by a finalizer stays when it has ended, without any grace.
func TestAPodWithAFinalizer(t *testing.T) {
	p := play{"protected", takesTwoSeconds, simcloud.AnnotationStopAfter, "2s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string {
		all := append(p.make(t, c, n, "ready True", "example.com/protected"), p.end(t, c, n, "ending in 0")...)
		pod := p.pod(n.name)
		if err := c.Patch(t.Context(), pod, client.RawPatch("application/merge-patch+json",
			[]byte(`{"metadata": {"finalizers": null}}`))); err != nil {
			t.Fatal(err)
		}
		return append(all, c.record.shows(t, 0, p.shown(n.name), "gone")...)
	})
}

// Pods that end by themselves stay, and are removed at once when they are deleted.
func TestPodsThatEnd(t *testing.T) {
	for wanted, p := range map[string]play{
		"Succeeded ready": {"completes", "sleep 1", simcloud.AnnotationCompleteAfter, "1s", corev1.RestartPolicyNever, 30},
		"Failed ready":    {"fails", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s", corev1.RestartPolicyNever, 30},
	} {
		t.Run(p.name, func(t *testing.T) {
			compare(t, func(t *testing.T, c *cluster, n node) []string {
				return append(p.make(t, c, n, wanted), p.end(t, c, n, "gone")...)
			})
		})
	}
}

// Containers that exit are restarted, at once the first time and later after a while.
func TestPodsThatRestart(t *testing.T) {
	p := play{"crashes", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s", corev1.RestartPolicyAlways, 30}
	compare(t, func(t *testing.T, c *cluster, n node) []string { return p.make(t, c, n, "restarts 2") })
}

// A pod whose containers wait to be restarted ends as they did last.
func TestPodsThatAreDeletedBeforeARestart(t *testing.T) {
	for waits, p := range map[string]play{
		"exited 0 Completed after 0": {"repeats", "sleep 1", simcloud.AnnotationCompleteAfter, "1s",
			corev1.RestartPolicyAlways, 30},
		"exited 1 Error after 1": {"retries", "sleep 1; exit 1", simcloud.AnnotationCrashAfter, "1s",
			corev1.RestartPolicyOnFailure, 30},
	} {
		t.Run(p.name, func(t *testing.T) {
			compare(t, func(t *testing.T, c *cluster, n node) []string {
				return append(p.make(t, c, n, waits), p.end(t, c, n, "gone")...)
			})
		})
	}
}
