package host

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"machinist.dev/machinist/simcloud"
)

// Restarted containers wait as kubelets let them.
const (
	restartBackoff    = 10 * time.Second
	maxRestartBackoff = 5 * time.Minute
)

// stage is where a pod's play has got to.
type stage int

const (
	starting stage = iota // containers are being created
	running               // containers run, not ready
	ready
	backoff   // containers exited and will run again
	succeeded // containers exited for good
	failed

	// stopped is no stage but the end of any: the pod is deleted.
	stopped
)

// never is a duration that does not pass.
const never = time.Duration(math.MaxInt64)

// script is what a pod's annotations want. Durations below zero are not set.
type script struct {
	readyAfter, stopAfter, crashAfter, completeAfter time.Duration
}

// pod is what the machine keeps of a pod: enough to play it, without a client
// or a clock.
type pod struct {
	namespace, name string
	uid             types.UID
	generation      int64
	containers      []container
	restart         corev1.RestartPolicy
	hostNetwork     bool
	script          script
	// stopBy is the end of the grace period, zero while nobody deletes the pod.
	stopBy time.Time

	stage      stage
	since      time.Time // when the stage began
	startTime  time.Time // when the machine first saw the pod
	runningAt  time.Time // when the containers last started
	ranBefore  time.Time // when the run before that started
	exitedAt   time.Time
	stoppingAt time.Time // when the machine learned of the deletion
	restarts   int32
	ip         string
	// moved means that the API server knows an address that the pod had before.
	moved bool

	// reported means that the API server knows the stage.
	reported bool
	// over means that the containers were stopped because the pod is deleted:
	// it may go. gone, that it went as far as the machine is concerned.
	over, gone bool
	// retryAt is when a failed call is tried again.
	retryAt time.Time
}

type container struct{ name, image string }

// update takes over what others changed.
func (p *pod) update(from *corev1.Pod, now time.Time, s simcloud.HostSettings) (complaint error) {
	p.generation = from.Generation
	p.script, complaint = scriptOf(from.Annotations, s)
	if from.DeletionTimestamp != nil {
		p.stopBy = from.DeletionTimestamp.Time
		if p.stoppingAt.IsZero() {
			p.stoppingAt = now
		}
	}
	return complaint
}

// newPod begins a pod's play, or continues it where its status says it is.
func newPod(from *corev1.Pod, now time.Time, s simcloud.HostSettings) (*pod, error) {
	p := &pod{
		namespace: from.Namespace, name: from.Name, uid: from.UID,
		restart: from.Spec.RestartPolicy, hostNetwork: from.Spec.HostNetwork,
		since: now, startTime: now,
	}
	for _, c := range from.Spec.Containers {
		p.containers = append(p.containers, container{c.Name, c.Image})
	}
	p.resume(from.Status)
	return p, p.update(from, now, s)
}

// resume continues what a former life of the machine did.
func (p *pod) resume(status corev1.PodStatus) {
	if status.StartTime != nil {
		p.startTime = status.StartTime.Time
	}
	p.ip = status.PodIP
	for _, c := range status.ContainerStatuses {
		p.restarts = max(p.restarts, c.RestartCount)
	}
	switch status.Phase {
	case corev1.PodSucceeded:
		p.stage, p.reported = succeeded, true
		return
	case corev1.PodFailed:
		p.stage, p.reported = failed, true
		return
	}
	if len(status.ContainerStatuses) == 0 {
		return
	}
	for _, c := range status.ContainerStatuses {
		if c.State.Running == nil {
			return
		}
		p.runningAt = c.State.Running.StartedAt.Time
	}
	p.stage, p.since, p.reported = running, p.runningAt, true
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.stage, p.since = ready, c.LastTransitionTime.Time
		}
	}
}

// reboot is what the machine's boot means for a pod that ran before it: its
// containers are gone, and it gets another address if they start again.
func (p *pod) reboot(now time.Time) {
	if p.stage != running && p.stage != ready {
		return
	}
	p.stage, p.since, p.reported = starting, now, false
	if p.restart == corev1.RestartPolicyNever {
		p.stage, p.exitedAt = failed, now
		return
	}
	p.restarts++
	p.moved = !p.hostNetwork
	if p.moved {
		p.ip = ""
	}
}

// next is when the pod's play goes on by itself and with what, zero if it does
// not. PodStartTime and the like are the only reasons for a pod to wait.
func (p *pod) next(s simcloud.HostSettings) (at time.Time, to stage) {
	consider := func(from time.Time, after time.Duration, stage stage) {
		if after < 0 || after == never {
			return
		}
		if t := from.Add(after); at.IsZero() || t.Before(at) {
			at, to = t, stage
		}
	}
	if !p.stopBy.IsZero() {
		if !p.over {
			consider(p.stoppingAt, p.stopAfter(), stopped)
		}
		return at, to
	}
	switch p.stage {
	case starting:
		consider(p.since, time.Duration(s.PodStartTime), running)
	case running, ready:
		consider(p.runningAt, p.script.crashAfter, p.exit(failed))
		consider(p.runningAt, p.script.completeAfter, p.exit(succeeded))
		if p.stage == running {
			consider(p.runningAt, max(0, p.script.readyAfter), ready)
		}
	case backoff:
		delay := min(maxRestartBackoff, restartBackoff<<min(p.restarts, 10))
		consider(p.since, delay, running)
	}
	return at, to
}

// exit is where a pod gets to whose containers exit this way.
func (p *pod) exit(as stage) stage {
	if p.restart == corev1.RestartPolicyNever || (p.restart == corev1.RestartPolicyOnFailure && as == succeeded) {
		return as
	}
	return backoff
}

// stopAfter is how long the pod takes to terminate: no longer than its grace
// period, and no time at all if nothing of it runs.
func (p *pod) stopAfter() time.Duration {
	if p.stage != running && p.stage != ready {
		return 0
	}
	return max(0, min(p.script.stopAfter, p.stopBy.Sub(p.stoppingAt)))
}

// advance goes on with everything that is due.
func (p *pod) advance(now time.Time, s simcloud.HostSettings) {
	for {
		at, to := p.next(s)
		if at.IsZero() || at.After(now) {
			return
		}
		ran := p.stage == running || p.stage == ready
		if ran && to != ready {
			p.exitedAt = at
		}
		switch to {
		case running:
			if p.stage == backoff {
				p.restarts++
			}
			p.ranBefore, p.runningAt = p.runningAt, at
		case stopped:
			p.over = true
			if !ran {
				// What never ran, or ended before, has nothing new to say.
				p.reported = p.reported || p.stage == starting || p.stage == backoff
				continue
			}
			to = succeeded
		}
		p.stage, p.since, p.reported = to, at, false
	}
}

// wantsCall shows whether there is something to tell the API server.
func (p *pod) wantsCall() bool { return !p.reported || (p.over && !p.gone) }

// due is when the machine has something to do about the pod, zero if nothing
// is to come.
func (p *pod) due(s simcloud.HostSettings) time.Time {
	if !p.retryAt.IsZero() {
		return p.retryAt
	}
	at, _ := p.next(s)
	return at
}

func (p *pod) status(hostIP string) *corev1.PodStatus {
	status := &corev1.PodStatus{
		ObservedGeneration: p.generation,
		Phase:              corev1.PodRunning,
		HostIP:             hostIP,
		HostIPs:            []corev1.HostIP{{IP: hostIP}},
		StartTime:          ptr.To(metav1.NewTime(p.startTime)),
	}
	// Only where containers can start there is an address.
	if p.ip != "" && (p.stage != starting || p.hostNetwork) {
		status.PodIP, status.PodIPs = p.ip, []corev1.PodIP{{IP: p.ip}}
	}
	reason := ""
	switch p.stage {
	case starting:
		status.Phase, reason = corev1.PodPending, "ContainersNotReady"
	case running, backoff:
		reason = "ContainersNotReady"
	case succeeded:
		status.Phase, reason = corev1.PodSucceeded, "PodCompleted"
	case failed:
		status.Phase, reason = corev1.PodFailed, "PodFailed"
	}
	var names []string
	for _, c := range p.containers {
		names = append(names, c.name)
	}
	condition := func(kind corev1.PodConditionType, keeps bool, reason string) {
		c := corev1.PodCondition{
			Type: kind, Status: corev1.ConditionFalse, Reason: reason,
			ObservedGeneration: p.generation, LastTransitionTime: metav1.NewTime(p.since),
		}
		switch {
		case keeps:
			c.Status, c.Reason = corev1.ConditionTrue, ""
		case reason == "ContainersNotReady":
			c.Message = fmt.Sprintf("containers with unready status: [%s]", strings.Join(names, " "))
		}
		status.Conditions = append(status.Conditions, c)
	}
	condition(corev1.PodReadyToStartContainers, p.stage == running || p.stage == ready || p.stage == backoff, "")
	condition(corev1.PodInitialized, true, "")
	initialized := &status.Conditions[1]
	initialized.LastTransitionTime = metav1.NewTime(p.startTime)
	if p.stage == succeeded {
		initialized.Reason = reason
	}
	condition(corev1.PodReady, p.stage == ready, reason)
	condition(corev1.ContainersReady, p.stage == ready, reason)
	for _, c := range p.containers {
		status.ContainerStatuses = append(status.ContainerStatuses, p.containerStatus(c))
	}
	return status
}

func (p *pod) containerStatus(c container) corev1.ContainerStatus {
	out := corev1.ContainerStatus{
		Name: c.name, Image: c.image, ImageID: "simulated://" + c.image,
		RestartCount: p.restarts, Ready: p.stage == ready,
		Started: ptr.To(p.stage == running || p.stage == ready),
	}
	exit := func(started time.Time, code int32, reason string) *corev1.ContainerStateTerminated {
		return &corev1.ContainerStateTerminated{
			ExitCode: code, Reason: reason,
			StartedAt: metav1.NewTime(started), FinishedAt: metav1.NewTime(p.exitedAt),
		}
	}
	// How the last run ended is how this one would, too.
	code, why := int32(0), "Completed"
	if p.script.crashAfter >= 0 && (p.script.completeAfter < 0 || p.script.crashAfter <= p.script.completeAfter) {
		code, why = 1, "Error"
	}
	switch p.stage {
	case starting:
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
	case running, ready:
		out.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(p.runningAt)}
		if p.restarts > 0 && !p.exitedAt.IsZero() {
			out.LastTerminationState.Terminated = exit(p.ranBefore, code, why)
		}
	case backoff:
		out.State.Waiting = &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
		out.LastTerminationState.Terminated = exit(p.runningAt, code, why)
	case failed:
		out.State.Terminated = exit(p.runningAt, 1, "Error")
	case succeeded:
		out.State.Terminated = exit(p.runningAt, 0, "Completed")
	}
	return out
}

// scriptOf reads a pod's annotations. One that cannot be read counts as not
// there.
func scriptOf(annotations map[string]string, s simcloud.HostSettings) (script, error) {
	out := script{readyAfter: -1, stopAfter: time.Duration(s.PodStopTime), crashAfter: -1, completeAfter: -1}
	var complaint error
	for key, into := range map[string]*time.Duration{
		simcloud.AnnotationReadyAfter:    &out.readyAfter,
		simcloud.AnnotationStopAfter:     &out.stopAfter,
		simcloud.AnnotationCrashAfter:    &out.crashAfter,
		simcloud.AnnotationCompleteAfter: &out.completeAfter,
	} {
		text, ok := annotations[key]
		if !ok {
			continue
		}
		if text == "never" {
			*into = never
			continue
		}
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 {
			complaint = fmt.Errorf("annotation %s: %q is not a duration", key, text)
			continue
		}
		*into = d
	}
	return out, complaint
}
