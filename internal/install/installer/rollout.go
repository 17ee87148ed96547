package installer

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"machinist.dev/machinist/api/v1beta1"
)

// crashLoopRestarts is the number of restarts after which a container that is not ready is reported as crash looping.
// The kubelet reports CrashLoopBackOff only while it waits for the next start.
const crashLoopRestarts = 3

type rollout struct {
	complete bool
	// isStuck is true if the rollout waits for a user. reason and message explain why.
	isStuck         bool
	reason, message string
}

func (p process) rollout() rollout {
	d := p.deployment
	want := int32(1)
	if d.Spec.Replicas != nil {
		want = *d.Spec.Replicas
	}
	s := d.Status
	if s.ObservedGeneration >= d.Generation && s.UpdatedReplicas == want && s.Replicas == want &&
		s.AvailableReplicas == want {
		return rollout{complete: true, reason: v1beta1.ReasonRolloutComplete,
			message: fmt.Sprintf("%d of %s updated and available.", want, replicas(want))}
	}
	for _, find := range []func() *rollout{p.podsRefused, p.newestStuckPod, p.deadlineExceeded} {
		if found := find(); found != nil {
			return *found
		}
	}
	return rollout{reason: v1beta1.ReasonRollingOut, message: fmt.Sprintf(
		"%d of %s updated, %d available.", s.UpdatedReplicas, replicas(want), s.AvailableReplicas)}
}

func (p process) podsRefused() *rollout {
	if c := deploymentCondition(p.deployment, appsv1.DeploymentReplicaFailure); c != nil &&
		c.Status == corev1.ConditionTrue {
		return &rollout{isStuck: true, reason: v1beta1.ReasonPodsRefused,
			message: fmt.Sprintf("The API server refuses to create pods: %s", c.Message)}
	}
	return nil
}

// newestStuckPod returns the problem of the stuck pod that was created last, because this pod runs the newest version.
func (p process) newestStuckPod() *rollout {
	pods := slices.Clone(p.pods)
	slices.SortFunc(pods, func(a, b corev1.Pod) int {
		return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for i := range pods {
		pod := &pods[i]
		if isReady(pod) || pod.DeletionTimestamp != nil {
			continue
		}
		if found := stuckPod(pod); found != nil {
			return found
		}
	}
	return nil
}

// stuckPod returns the problem of a pod that waits for a user, or nil.
func stuckPod(pod *corev1.Pod) *rollout {
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && c.Reason == corev1.PodReasonUnschedulable {
			return &rollout{isStuck: true, reason: v1beta1.ReasonUnschedulable,
				message: fmt.Sprintf("Pod %s cannot be scheduled: %s", pod.Name, c.Message)}
		}
	}
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		switch waiting := c.State.Waiting; {
		case waiting != nil && waiting.Reason == v1beta1.ReasonCrashLoopBackOff,
			c.RestartCount >= crashLoopRestarts && !c.Ready && c.LastTerminationState.Terminated != nil:
			return &rollout{isStuck: true, reason: v1beta1.ReasonCrashLoopBackOff,
				message: fmt.Sprintf("Pod %s was restarted %d times. It last ended %s", pod.Name, c.RestartCount, lastTermination(c))}
		case waiting != nil && waiting.Reason != "" && waiting.Reason != "ContainerCreating" &&
			waiting.Reason != "PodInitializing":
			return &rollout{isStuck: true, reason: waiting.Reason,
				message: fmt.Sprintf("Pod %s does not start: %s", pod.Name, cmp.Or(waiting.Message, waiting.Reason))}
		}
	}
	return nil
}

func lastTermination(c corev1.ContainerStatus) string {
	t := cmp.Or(c.State.Terminated, c.LastTerminationState.Terminated)
	if t == nil {
		return "for an unknown reason."
	}
	text := fmt.Sprintf("with exit code %d", t.ExitCode)
	if t.Reason != "" && t.Reason != "Error" {
		text += fmt.Sprintf(" (%s)", t.Reason)
	}
	if message := strings.TrimSpace(t.Message); message != "" {
		return text + ": " + message
	}
	return text + "."
}

func (p process) deadlineExceeded() *rollout {
	c := deploymentCondition(p.deployment, appsv1.DeploymentProgressing)
	if c == nil || c.Status != corev1.ConditionFalse || c.Reason != v1beta1.ReasonProgressDeadlineExceeded {
		return nil
	}
	for i := range p.pods {
		for _, ready := range p.pods[i].Status.Conditions {
			if ready.Type == corev1.PodReady && ready.Status == corev1.ConditionFalse {
				return &rollout{isStuck: true, reason: v1beta1.ReasonNotReady,
					message: fmt.Sprintf("Pod %s is running, but does not become ready: %s", p.pods[i].Name,
						cmp.Or(ready.Message, ready.Reason))}
			}
		}
	}
	return &rollout{isStuck: true, reason: v1beta1.ReasonProgressDeadlineExceeded, message: c.Message}
}

func deploymentCondition(d *appsv1.Deployment, of appsv1.DeploymentConditionType) *appsv1.DeploymentCondition {
	for i := range d.Status.Conditions {
		if d.Status.Conditions[i].Type == of {
			return &d.Status.Conditions[i]
		}
	}
	return nil
}

func replicas(n int32) string {
	if n == 1 {
		return "1 replica"
	}
	return fmt.Sprintf("%d replicas", n)
}
