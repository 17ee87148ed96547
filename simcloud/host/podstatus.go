package host

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// reasonCreating is the reason in the status of containers that wait for their sandbox or image.
const reasonCreating = "ContainerCreating"

func (p *pod) status(hostIP string) *corev1.PodStatus {
	status := &corev1.PodStatus{
		ObservedGeneration: p.generation,
		Phase:              corev1.PodRunning,
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          ptr.To(metav1.NewTime(p.startTime)),
	}
	// The address appears only after the containers have started, unless the pod uses the host network.
	if p.ip != "" && (p.stage > prepared && !p.neverRan || p.hostNetwork) {
		status.PodIP, status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	reason := ""
	switch p.stage {
	case starting, prepared:
		status.Phase, reason = corev1.PodPending, "ContainersNotReady"
		if p.showsEnd() {
			status.Phase = corev1.PodRunning
		}
	case running, backoff:
		reason = "ContainersNotReady"
	case exited:
		switch {
		case !p.isLast():
			reason = "ContainersNotReady"
		case p.finalStage() == succeeded:
			reason = "PodCompleted"
		default:
			reason = "PodFailed"
		}
	case succeeded:
		status.Phase, reason = corev1.PodSucceeded, "PodCompleted"
	case failed:
		status.Phase, reason = corev1.PodFailed, "PodFailed"
		if p.neverRan {
			reason = "ContainersNotReady"
		}
	}
	var names []string
	for _, c := range p.containers {
		names = append(names, c.name)
	}
	condition := func(kind corev1.PodConditionType, keeps bool, since time.Time, reason string) {
		c := corev1.PodCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason,
			ObservedGeneration: p.generation, LastTransitionTime: metav1.NewTime(since),
		}
		switch {
		case keeps:
			c.Status, c.Reason = corev1.ConditionTrue, ""
		case reason == "ContainersNotReady":
			c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(names, " "))
		}
		status.Conditions = append(status.Conditions, c)
	}
	condition(corev1.PodReadyToStartContainers, p.hasSandbox(), p.sandboxAt, "")
	condition(corev1.PodInitialized, true, p.startTime, "")
	if p.stage == succeeded {
		status.Conditions[1].Reason = reason
	}
	condition(corev1.PodReady, p.stage == ready, p.readyAt, reason)
	condition(corev1.ContainersReady, p.stage == ready, p.readyAt, reason)
	for _, c := range p.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, p.containerStatus(c))
	}
	return status
}

// showsEnd reports whether the status shows containers as terminated until they restart after a reboot. A kubelet
// shows such containers as terminated only with the restart policy OnFailure.
func (p *pod) showsEnd() bool { return p.rebooted && p.restart == corev1.RestartPolicyOnFailure }

func (p *pod) containerStatus(c container) corev1.ContainerStatus {
	out := corev1.ContainerStatus{
		Name: c.name, Image: c.image, ImageID: "simulated://" + c.image,
		RestartCount: p.restarts, Ready: p.stage == ready,
		Started: ptr.To(p.runs()),
	}
	ended := func(started time.Time, e exit) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{ExitCode: e.code, Reason: e.reason,
			StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(e.at)}
	}
	switch p.stage {
	case starting, prepared:
		if p.showsEnd() {
			out.State.Terminated = ended(p.runningAt, p.exit)
			break
		}
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: reasonCreating}
	case running, ready:
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.runningAt)}
		switch {
		case p.restarts == 0 || p.exit.at.IsZero():
		case p.interrupted && p.restart == corev1.RestartPolicyAlways: // The kubelet has forgotten the containers.
			out.LastTerminationState.Waiting = &corev1.ContainerStateWaiting{}
		default:
			out.LastTerminationState.Terminated = ended(p.previousStart, p.exit)
		}
	case backoff:
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		out.LastTerminationState.Terminated = ended(p.runningAt, p.exit)
	case exited, succeeded, failed:
		out.State.Terminated = ended(p.runningAt, p.exit)
		if p.restarts > 0 && !p.previousExit.at.IsZero() {
			out.LastTerminationState.Terminated = ended(p.previousStart, p.previousExit)
		}
		if p.neverRan {
			out.State.Terminated = &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "ContainerStatusUnknown",
				Message: "The container could not be located when the pod was terminated"}
		}
	}
	return out
}
