package host

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/simcloud"
)

// Restarts are delayed as in kubelets.
const (
	restartBackoff    = 10 * time.Second
	maxRestartBackoff = 5 * time.Minute
	// exitNotice is how long a kubelet reports exited containers before it restarts them or ends the pod.
	exitNotice = 500 * time.Millisecond
	// podSync is the interval at which a kubelet checks a pod with exited containers. Only then does it report that the
	// pod waits for a restart.
	podSync = 10 * time.Second
)

type stage int

const (
	starting stage = iota // the sandbox is being created
	prepared              // the sandbox exists, and the containers are being created
	running               // the containers run, but are not ready
	ready
	exited    // the containers have just exited
	backoff   // the containers exited and will be restarted
	succeeded // the containers exited and will not be restarted
	failed

	// stopped means that the pod was deleted. This stage can follow any other stage.
	stopped
)

const forever = time.Duration(math.MaxInt64)

// script contains the durations from the annotations of a pod, such as AnnotationReadyAfter. A negative duration means
// that the annotation is missing.
type script struct {
	readyAfter, stopAfter, crashAfter, completeAfter time.Duration
}

// pod is the state of a simulated pod, without a client or a clock.
type pod struct {
	namespace, name string
	uid             types.UID
	generation      int64
	containers      []container
	restart         corev1.RestartPolicy
	hostNetwork     bool
	script          script
	// stopBy is the end of the grace period, or zero if the pod is not being deleted.
	stopBy time.Time

	stage         stage
	since         time.Time // start time of the stage
	sandboxAt     time.Time // time of the last change of the sandbox
	readyAt       time.Time // time of the last change of readiness
	startTime     time.Time // time at which the machine first saw the pod
	runningAt     time.Time // time of the last start of the containers
	previousStart time.Time // time of the start before runningAt
	exit          exit      // how the last run of the containers ended
	previousExit  exit      // how the run before the last run ended
	stoppingAt    time.Time // time at which the machine learned of the deletion
	restarts      int32
	ip            string
	// addressChanged is true if the API server knows an earlier address of the pod.
	addressChanged bool
	// neverRan is true if the pod was deleted before its containers ran.
	neverRan bool
	// interrupted is true if the machine was switched off while the containers ran. rebooted is true from then until
	// the containers start again.
	interrupted, rebooted bool
	// pendingEvents contains unsent events.
	pendingEvents []podEvent

	// isReported is true if the API server knows the stage.
	isReported bool
	// terminated is true if the machine has stopped the containers because the pod is being deleted. deleted is true if
	// the machine has then deleted the pod from the API server.
	terminated, deleted bool
	// retryAt is when to retry a failed call.
	retryAt time.Time
}

type container struct{ name, image string }

// exit describes how the containers ended.
type exit struct {
	at     time.Time
	code   int32
	reason string
}

// update applies a new version of the pod, which another client has changed in the API server.
func (p *pod) update(from *corev1.Pod, now time.Time, s simcloud.HostSettings) (complaint error) {
	if from.Generation != p.generation && p.stage != succeeded && p.stage != failed {
		p.isReported = false // A kubelet acknowledges every change, including deletion.
	}
	p.generation = from.Generation
	p.script, complaint = scriptOf(from.Annotations, s)
	if from.DeletionTimestamp != nil {
		p.stopBy = from.DeletionTimestamp.Time
		if p.stoppingAt.IsZero() {
			p.stoppingAt = now
			if p.runs() {
				p.addEvents(corev1.EventTypeNormal, "Killing", "Stopping container {}")
			}
		}
	}
	return complaint
}

// newPod starts the simulation of a pod, or continues it from the status of the pod.
func newPod(from *corev1.Pod, now time.Time, s simcloud.HostSettings) (*pod, error) {
	p := &pod{
		namespace: from.Namespace, name: from.Name, uid: from.UID,
		restart: from.Spec.RestartPolicy, hostNetwork: from.Spec.HostNetwork,
		since: now, sandboxAt: now, readyAt: now, startTime: now,
	}
	for _, c := range from.Spec.Containers {
		p.containers = append(p.containers, container{c.Name, c.Image})
	}
	p.resume(from.Status)
	return p, p.update(from, now, s)
}

// resume restores the simulation from the status of the pod after a restart of the process.
func (p *pod) resume(status corev1.PodStatus) {
	if status.StartTime != nil {
		p.startTime = status.StartTime.Time
	}
	p.ip, p.generation = status.PodIP, status.ObservedGeneration
	for _, c := range status.ContainerStatuses {
		p.restarts = max(p.restarts, c.RestartCount)
		if last := c.LastTerminationState.Terminated; last != nil {
			p.exit, p.previousStart = exitOf(last), last.StartedAt.Time
		}
		if end := c.State.Terminated; end != nil {
			p.previousExit, p.exit, p.runningAt = p.exit, exitOf(end), end.StartedAt.Time
		}
	}
	switch status.Phase {
	case corev1.PodSucceeded:
		p.stage, p.isReported = succeeded, true
		return
	case corev1.PodFailed:
		p.stage, p.isReported = failed, true
		return
	}
	if len(status.ContainerStatuses) == 0 {
		return
	}
	sandbox := false
	for _, c := range status.Conditions {
		switch c.Type {
		case corev1.PodReadyToStartContainers:
			sandbox, p.sandboxAt = c.Status == corev1.ConditionTrue, c.LastTransitionTime.Time
		case corev1.PodReady:
			p.readyAt = c.LastTransitionTime.Time
		}
	}
	for _, c := range status.ContainerStatuses {
		if c.State.Running == nil {
			if c.State.Terminated != nil {
				p.stage, p.since, p.isReported = exited, p.exit.at, true
			}
			if sandbox && c.State.Waiting != nil && c.State.Waiting.Reason == reasonCreating {
				p.stage, p.since, p.isReported = prepared, p.sandboxAt, true
			}
			return
		}
		p.runningAt = c.State.Running.StartedAt.Time
	}
	p.stage, p.since, p.isReported = running, p.runningAt, true
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.stage, p.since = ready, p.readyAt
		}
	}
}

func exitOf(end *corev1.ContainerStateTerminated) exit {
	return exit{end.FinishedAt.Time, end.ExitCode, end.Reason}
}

// enter sets the stage of the pod. The machine must then report the new stage to the API server.
func (p *pod) enter(to stage, at time.Time) {
	sandbox, wasReady := p.hasSandbox(), p.stage == ready
	p.stage, p.since, p.isReported = to, at, false
	if p.hasSandbox() != sandbox {
		p.sandboxAt = at
	}
	if (to == ready) != wasReady {
		p.readyAt = at
	}
}

func (p *pod) runs() bool { return p.stage == running || p.stage == ready }

func (p *pod) hasSandbox() bool {
	return p.stage == prepared || p.stage == exited && !p.isLast() || p.stage == backoff || p.runs()
}

// addEvents adds an event for each container. "{}" in the message stands for the container's name.
func (p *pod) addEvents(kind, reason, message string) {
	for _, c := range p.containers {
		p.pendingEvents = append(p.pendingEvents, podEvent{c.name, kind, reason, strings.ReplaceAll(message, "{}", c.name)})
	}
}

func (p *pod) image(container string) string {
	for _, c := range p.containers {
		if c.name == container {
			return c.image
		}
	}
	return ""
}

// reboot handles a reboot of the machine while the containers were running. When the containers start again, the pod
// gets a new address.
func (p *pod) reboot(now time.Time) {
	if !p.runs() {
		return
	}
	p.interrupted, p.previousExit, p.exit = true, p.exit, exit{now, 255, "Unknown"}
	if p.restart == corev1.RestartPolicyNever {
		p.enter(failed, now)
		return
	}
	p.enter(starting, now)
	p.rebooted = true
	p.pendingEvents = append(p.pendingEvents, podEvent{"", corev1.EventTypeNormal, "SandboxChanged",
		"Pod sandbox changed, it will be killed and re-created."})
	p.addressChanged = !p.hostNetwork
	if p.addressChanged {
		p.ip = ""
	}
}

// next returns the next stage of the pod and the time when this stage begins. An external event, such as the deletion
// of the pod, can change the stage and the time. If there is no next stage, the time is zero.
func (p *pod) next(s simcloud.HostSettings) (at time.Time, to stage) {
	consider := func(from time.Time, after time.Duration, stage stage) {
		if after < 0 || after == forever {
			return
		}
		if t := from.Add(after); at.IsZero() || t.Before(at) {
			at, to = t, stage
		}
	}
	if !p.stopBy.IsZero() {
		if !p.terminated {
			consider(p.stoppingAt, p.stopAfter(), stopped)
		}
		return at, to
	}
	switch p.stage {
	case starting:
		consider(p.since, time.Duration(s.PodStartTime)/2, prepared)
	case prepared:
		consider(p.since, time.Duration(s.PodStartTime)-time.Duration(s.PodStartTime)/2, running)
	case running, ready:
		consider(p.runningAt, p.script.crashAfter, exited)
		consider(p.runningAt, p.script.completeAfter, exited)
		if p.stage == running {
			consider(p.runningAt, max(0, p.script.readyAfter), ready)
		}
	case exited:
		switch {
		case p.isLast():
			consider(p.since, exitNotice, p.finalStage())
		case p.restarts == 0: // The first restart has no delay.
			consider(p.since, exitNotice, running)
		default:
			consider(p.since, podSync, backoff)
		}
	case backoff:
		delay := min(maxRestartBackoff, restartBackoff<<min(max(0, p.restarts-1), 10))
		consider(p.exit.at, max(delay, podSync+exitNotice), running)
	}
	return at, to
}

// finalStage returns the final stage of a pod whose containers do not restart.
func (p *pod) finalStage() stage {
	if p.exit.code != 0 {
		return failed
	}
	return succeeded
}

// isLast reports whether the restart policy keeps the containers stopped after their exit.
func (p *pod) isLast() bool {
	return p.restart == corev1.RestartPolicyNever || p.restart == corev1.RestartPolicyOnFailure && p.exit.code == 0
}

// stopAfter returns the duration of the termination: at most the grace period, and 0 if the pod never ran.
func (p *pod) stopAfter() time.Duration {
	switch {
	case p.stage == exited, p.stage == backoff:
		return exitNotice
	case !p.runs():
		return 0
	}
	return max(0, min(p.script.stopAfter, p.stopBy.Sub(p.stoppingAt)))
}

// recordExit records that running containers completed, crashed, or were killed at the end of the grace period.
func (p *pod) recordExit(to stage, at time.Time) {
	p.previousExit, p.exit, p.interrupted = p.exit, exit{at, 0, "Completed"}, false
	crash, complete := p.script.crashAfter, p.script.completeAfter
	switch {
	case to == stopped && p.script.stopAfter > p.stopBy.Sub(p.stoppingAt):
		p.exit.code, p.exit.reason = 137, "Error"
	case to == exited && crash >= 0 && (complete < 0 || crash <= complete):
		p.exit.code, p.exit.reason = 1, "Error"
	}
}

// advance moves the pod through all stages that have begun.
func (p *pod) advance(now time.Time, s simcloud.HostSettings) {
	for {
		at, to := p.next(s)
		if at.IsZero() || at.After(now) {
			return
		}
		ran := p.runs()
		if ran && to != ready {
			p.recordExit(to, at)
		}
		switch to {
		case running:
			if p.stage == exited || p.stage == backoff || p.rebooted {
				p.restarts++
			}
			p.rebooted = false
			p.previousStart, p.runningAt = p.runningAt, at
			p.addEvents(corev1.EventTypeNormal, pulled, "")
			p.addEvents(corev1.EventTypeNormal, "Created", "Container created")
			p.addEvents(corev1.EventTypeNormal, "Started", "Container started")
		case backoff:
			p.addEvents(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container {} in pod "+p.name+"_"+
				p.namespace+"("+string(p.uid)+")")
		case stopped:
			p.terminated = true
			switch {
			case ran, p.stage == exited, p.stage == backoff:
				to = p.finalStage()
			case p.stage == starting, p.stage == prepared:
				to, p.neverRan = failed, true
			default:
				continue // The pod ended earlier and stays in its stage.
			}
		}
		p.enter(to, at)
	}
}

func (p *pod) wantsCall() bool { return !p.isReported || (p.terminated && !p.deleted) }

// dueTime returns the time at which the machine must continue to simulate the pod. A zero time means that the pod
// waits for an external event.
func (p *pod) dueTime(s simcloud.HostSettings) time.Time {
	if !p.retryAt.IsZero() {
		return p.retryAt
	}
	at, _ := p.next(s)
	return at
}

// scriptOf reads the annotations of a pod. Invalid annotations are ignored.
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
			*into = forever
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
