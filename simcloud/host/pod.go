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

// Restarted containers wait as kubelets let them.
const (
	restartBackoff    = 10 * time.Second
	maxRestartBackoff = 5 * time.Minute
	// exitNotice is how long a kubelet shows that containers have exited before it does something about it.
	exitNotice = 500 * time.Millisecond
	// podSync is when a kubelet comes back to a pod that has to wait. Only then it shows that it does.
	podSync = 10 * time.Second
)

// stage is where a pod's play has got to.
type stage int

const (
	starting stage = iota // the sandbox is being made
	prepared              // the sandbox is there, the containers are being created
	running               // containers run, not ready
	ready
	exited    // containers exited, which was noticed only now
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
	sandboxAt  time.Time // when the sandbox was made, or went
	readyAt    time.Time // when the pod became ready, or ceased to be
	startTime  time.Time // when the machine first saw the pod
	runningAt  time.Time // when the containers last started
	ranBefore  time.Time // when the run before that started
	exit       exit      // of the last run
	exitBefore exit      // of the run before that
	stoppingAt time.Time // when the machine learned of the deletion
	restarts   int32
	ip         string
	// moved means that the API server knows an address that the pod had before.
	moved bool
	// lost means that the pod was deleted before its containers ran.
	lost bool
	// cut means that the machine went off while the containers ran for the last
	// time, rebooted that they have not been started again since.
	cut, rebooted bool
	// occurred is what has happened since the events were last taken.
	occurred []occurrence

	// reported means that the API server knows the stage.
	reported bool
	// over means that the containers were stopped because the pod is deleted:
	// it may go. gone, that it went as far as the machine is concerned.
	over, gone bool
	// retryAt is when a failed call is tried again.
	retryAt time.Time
}

type container struct{ name, image string }

// exit is how a run of the containers ended.
type exit struct {
	at     time.Time
	code   int32
	reason string
}

// update takes over what others changed.
func (p *pod) update(from *corev1.Pod, now time.Time, s simcloud.HostSettings) (complaint error) {
	if from.Generation != p.generation && p.stage != succeeded && p.stage != failed {
		p.reported = false // a kubelet acknowledges every change, a deletion too
	}
	p.generation = from.Generation
	p.script, complaint = scriptOf(from.Annotations, s)
	if from.DeletionTimestamp != nil {
		p.stopBy = from.DeletionTimestamp.Time
		if p.stoppingAt.IsZero() {
			p.stoppingAt = now
			if p.runs() {
				p.occur(corev1.EventTypeNormal, "Killing", "Stopping container {}")
			}
		}
	}
	return complaint
}

// newPod begins a pod's play, or continues it where its status says it is.
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

// resume continues what a former life of the machine did.
func (p *pod) resume(status corev1.PodStatus) {
	if status.StartTime != nil {
		p.startTime = status.StartTime.Time
	}
	p.ip, p.generation = status.PodIP, status.ObservedGeneration
	for _, c := range status.ContainerStatuses {
		p.restarts = max(p.restarts, c.RestartCount)
		if last := c.LastTerminationState.Terminated; last != nil {
			p.exit, p.ranBefore = exitOf(last), last.StartedAt.Time
		}
		if end := c.State.Terminated; end != nil {
			p.exitBefore, p.exit, p.runningAt = p.exit, exitOf(end), end.StartedAt.Time
		}
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
				p.stage, p.since, p.reported = exited, p.exit.at, true
			}
			if sandbox && c.State.Waiting != nil && c.State.Waiting.Reason == creating {
				p.stage, p.since, p.reported = prepared, p.sandboxAt, true
			}
			return
		}
		p.runningAt = c.State.Running.StartedAt.Time
	}
	p.stage, p.since, p.reported = running, p.runningAt, true
	for _, c := range status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			p.stage, p.since = ready, p.readyAt
		}
	}
}

func exitOf(end *corev1.ContainerStateTerminated) exit {
	return exit{end.FinishedAt.Time, end.ExitCode, end.Reason}
}

// enter goes to another stage, which is not reported yet.
func (p *pod) enter(to stage, at time.Time) {
	sandbox, wasReady := p.hasSandbox(), p.stage == ready
	p.stage, p.since, p.reported = to, at, false
	if p.hasSandbox() != sandbox {
		p.sandboxAt = at
	}
	if (to == ready) != wasReady {
		p.readyAt = at
	}
}

// runs shows whether the containers do.
func (p *pod) runs() bool { return p.stage == running || p.stage == ready }

// hasSandbox shows whether the pod has its sandbox, in which containers start.
func (p *pod) hasSandbox() bool {
	return p.stage == prepared || p.stage == exited && !p.isLast() || p.stage == backoff || p.runs()
}

// occur takes note of something about every container. The message may have a
// place for its name.
func (p *pod) occur(kind, reason, message string) {
	for _, c := range p.containers {
		p.occurred = append(p.occurred, occurrence{c.name, kind, reason, strings.ReplaceAll(message, "{}", c.name)})
	}
}

// image is that of a container.
func (p *pod) image(container string) string {
	for _, c := range p.containers {
		if c.name == container {
			return c.image
		}
	}
	return ""
}

// reboot is what the machine's boot means for a pod that ran before it: its
// containers are gone, and it gets another address if they start again.
func (p *pod) reboot(now time.Time) {
	if !p.runs() {
		return
	}
	p.cut, p.exitBefore, p.exit = true, p.exit, exit{now, 255, "Unknown"}
	if p.restart == corev1.RestartPolicyNever {
		p.enter(failed, now)
		return
	}
	p.enter(starting, now)
	p.rebooted = true
	p.occurred = append(p.occurred, occurrence{"", corev1.EventTypeNormal, "SandboxChanged",
		"Pod sandbox changed, it will be killed and re-created."})
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
			consider(p.since, exitNotice, p.ending())
		case p.restarts == 0: // The first restart waits for nothing.
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

// ending is how a pod ends whose containers exited as they did last.
func (p *pod) ending() stage {
	if p.exit.code != 0 {
		return failed
	}
	return succeeded
}

// isLast shows whether containers that exited as they did last are not restarted.
func (p *pod) isLast() bool {
	return p.restart == corev1.RestartPolicyNever || p.restart == corev1.RestartPolicyOnFailure && p.exit.code == 0
}

// stopAfter is how long the pod takes to terminate: no longer than its grace
// period, and no time at all if nothing of it ever ran.
func (p *pod) stopAfter() time.Duration {
	switch {
	case p.stage == exited, p.stage == backoff:
		return exitNotice
	case !p.runs():
		return 0
	}
	return max(0, min(p.script.stopAfter, p.stopBy.Sub(p.stoppingAt)))
}

// exits takes note of how containers that ran have exited: by themselves, as they were asked to, or killed because they
// were not through when the grace period was.
func (p *pod) exits(to stage, at time.Time) {
	p.exitBefore, p.exit, p.cut = p.exit, exit{at, 0, "Completed"}, false
	crash, complete := p.script.crashAfter, p.script.completeAfter
	switch {
	case to == stopped && p.script.stopAfter > p.stopBy.Sub(p.stoppingAt):
		p.exit.code, p.exit.reason = 137, "Error"
	case to == exited && crash >= 0 && (complete < 0 || crash <= complete):
		p.exit.code, p.exit.reason = 1, "Error"
	}
}

// advance goes on with everything that is due.
func (p *pod) advance(now time.Time, s simcloud.HostSettings) {
	for {
		at, to := p.next(s)
		if at.IsZero() || at.After(now) {
			return
		}
		ran := p.runs()
		if ran && to != ready {
			p.exits(to, at)
		}
		switch to {
		case running:
			if p.stage == exited || p.stage == backoff || p.rebooted {
				p.restarts++
			}
			p.rebooted = false
			p.ranBefore, p.runningAt = p.runningAt, at
			p.occur(corev1.EventTypeNormal, pulled, "")
			p.occur(corev1.EventTypeNormal, "Created", "Container created")
			p.occur(corev1.EventTypeNormal, "Started", "Container started")
		case backoff:
			p.occur(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container {} in pod "+p.name+"_"+
				p.namespace+"("+string(p.uid)+")")
		case stopped:
			p.over = true
			switch {
			case ran, p.stage == exited, p.stage == backoff:
				to = p.ending()
			case p.stage == starting, p.stage == prepared:
				to, p.lost = failed, true
			default:
				continue // What ended before has nothing new to say.
			}
		}
		p.enter(to, at)
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
