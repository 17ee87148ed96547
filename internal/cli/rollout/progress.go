// Package rollout computes the progress of a MachineDeployment's rollout, and the effect of a rollback. All functions
// are pure: they use only the given objects.
package rollout

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/cli/printer"
	"machinist.dev/machinist/internal/cli/why"
	"machinist.dev/machinist/internal/fleet/machinedeployment"
	"machinist.dev/machinist/internal/platform/wording"
)

// State is the state of a rollout for users.
type State string

const (
	// StateDeleting means that the deployment is being deleted.
	StateDeleting State = "Deleting"
	// StateFrozen means that the condition Frozen is True: a user or a safety check has stopped the deployment.
	StateFrozen State = "Frozen"
	// StateFailed means that the rollout has stopped for good.
	StateFailed State = "Failed"
	// StateUnobserved means that the controller has not processed the latest change yet.
	StateUnobserved State = "Unobserved"
	// StateComplete means that all machines have the newest revision and are available.
	StateComplete State = "Complete"
	// StatePartitioned means that the rollout has updated all machines except those that partition keeps.
	StatePartitioned State = "Partitioned"
	// StatePaused means that spec.paused is set.
	StatePaused State = "Paused"
	// StateScaling means that machines are created or deleted without a rollout.
	StateScaling State = "Scaling"
	// StateWaiting means that an administrator must delete or select machines, promote the revision, lower
	// partition, add a version step, or upgrade the control plane.
	StateWaiting State = "Waiting"
	// StateProgressing means that the rollout is in progress.
	StateProgressing State = "Progressing"
)

// stateOf returns the state of a rollout at the time of the API server, with its reason and message. If the state can
// change without a change of the deployment, stateOf also returns the delay until the next call.
func stateOf(d *v1beta1.MachineDeployment, now time.Time) (state State, reason, message string, again time.Duration) {
	s, replicas := d.Status, d.ReplicasOrDefault()
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(s.Conditions, kind) }
	progressing, rolling, frozen := find(v1beta1.ConditionProgressing), find(v1beta1.ConditionRollingOut), find(v1beta1.ConditionFrozen)
	nothingToRoll := rolling != nil && rolling.Status == metav1.ConditionFalse
	of := func(state State, c *metav1.Condition) (State, string, string, time.Duration) {
		return state, c.Reason, c.Message, 0
	}
	switch {
	case d.DeletionTimestamp != nil:
		return StateDeleting, "", "", 0
	case frozen != nil && frozen.Status == metav1.ConditionTrue:
		return of(StateFrozen, frozen)
	case progressing != nil && progressing.Status == metav1.ConditionFalse &&
		progressing.ObservedGeneration == d.Generation && !isRetried(progressing.Reason):
		// If the controller rejects a change, it does not update status.observedGeneration. Therefore check for
		// StateFailed before StateUnobserved.
		return of(StateFailed, progressing)
	case s.ObservedGeneration < d.Generation && progressing != nil && progressing.ObservedGeneration == d.Generation:
		return of(StateUnobserved, progressing)
	case s.ObservedGeneration < d.Generation, rolling == nil && progressing == nil:
		return StateUnobserved, why.ReasonUnobserved, "The controller has not processed the latest change yet.", 0
	case nothingToRoll && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas >= replicas:
		// When a restart is due, the condition still describes the previous, completed rollout until the controller has
		// started the restart.
		if due := d.Spec.RolloutAfter; due != nil && replicas > 0 && !d.Spec.Paused &&
			rolling.LastTransitionTime.Before(due) && now.Sub(due.Time).Abs() < restartDelay {
			return StateUnobserved, rolling.Reason, "The controller has not started the restart yet.", due.Add(restartDelay).Sub(now)
		}
		return of(StateComplete, rolling)
	case nothingToRoll && rolling.Reason == v1beta1.ReasonPartitionReached && s.Replicas == replicas &&
		s.AvailableReplicas >= replicas:
		return of(StatePartitioned, rolling)
	case rolling == nil:
		return of(StateProgressing, progressing)
	case d.Spec.Paused:
		return of(StatePaused, rolling)
	case nothingToRoll:
		return of(StateScaling, rolling)
	case rolling.Reason == v1beta1.ReasonWaitingForDeletion, rolling.Reason == v1beta1.ReasonWaitingForSelection,
		rolling.Reason == v1beta1.ReasonVersionSkew, rolling.Reason == v1beta1.ReasonVersionStepMissing,
		rolling.Reason == v1beta1.ReasonPartitionReached, rolling.Reason == v1beta1.ReasonWaitingForPromotion:
		return of(StateWaiting, rolling)
	}
	return of(StateProgressing, rolling)
}

// Progress is how far a rollout has advanced.
type Progress struct {
	// Kind is always RolloutStatus.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Revision is the number of the newest revision.
	Revision int64 `json:"revision"`
	// Replicas is the desired number of machines, and Machines is the actual number. Updated is the number of machines
	// with the newest revision, and Old is the number of all other machines.
	Replicas  int32 `json:"replicas"`
	Machines  int32 `json:"machines"`
	Updated   int32 `json:"updated"`
	Old       int32 `json:"old"`
	Available int32 `json:"available"`
	// VersionStep is the step of the rollout (spec.versionSteps), or nil.
	VersionStep *v1beta1.VersionStepStatus `json:"versionStep,omitempty"`
	// Reason and Message come from the condition that determines the state.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// FailedMachines are examples of machines that failed.
	FailedMachines []v1beta1.FailedMachine `json:"failedMachines,omitempty"`
	// RecentFailures are the latest failures, newest first. The machines may have recovered since.
	RecentFailures []why.Failure `json:"recentFailures,omitempty"`
	// StartTime holds the start time of the rollout, or nil without a rollout.
	StartTime *time.Time `json:"began,omitempty"`
	// Now holds the time when the deployment was read, by the API server's clock.
	Now time.Time `json:"-"`
	// Waiting groups the machines that wait because of a problem.
	Waiting []why.Group `json:"waiting,omitempty"`
	// RecheckAfter holds the delay after which the progress must be computed again, even if the deployment does not
	// change. The delay 0 means that only a change of the deployment can change the progress.
	RecheckAfter time.Duration `json:"-"`
}

// restartDelay is the maximum expected time between spec.rolloutAfter and the start of the restart. The controller can
// start late, because its clock can be behind the API server's clock.
const restartDelay = 10 * time.Second

// Judge computes the progress of a deployment's rollout. Pass the time of the API server.
func Judge(d *v1beta1.MachineDeployment, now time.Time) Progress {
	s := d.Status
	p := Progress{
		Kind: "RolloutStatus", Namespace: d.Namespace, Name: d.Name, Revision: s.CurrentRevision,
		Replicas: d.ReplicasOrDefault(),
		Machines: s.Replicas, Updated: s.UpdatedReplicas, Old: max(0, s.Replicas-s.UpdatedReplicas),
		Available:      s.AvailableReplicas,
		VersionStep:    s.VersionStep,
		FailedMachines: s.FailedMachines, RecentFailures: why.FailuresOf(d), Now: now,
	}
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionRollingOut); c != nil &&
		c.Status == metav1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		began := c.LastTransitionTime.UTC()
		p.StartTime = &began
	}
	p.State, p.Reason, p.Message, p.RecheckAfter = stateOf(d, now)
	return p
}

// IsDone reports whether the rollout has updated all machines that it may update now.
func (p Progress) IsDone() bool { return p.State == StateComplete || p.State == StatePartitioned }

// RereadPeriod is the minimum time between two requests that list the machines. A list of machines can be very long.
const RereadPeriod = 10 * time.Second

// WithMachines returns a copy of the progress in which Waiting contains the waiting machines of the deployment.
func (p Progress) WithMachines(machines []*v1beta1.Machine, now time.Time) Progress {
	if p.IsDone() {
		return p
	}
	p.Waiting = slices.DeleteFunc(why.Groups(machines, func(m *v1beta1.Machine) string { return m.Name }),
		func(g why.Group) bool { return g.IsNormal(now) })
	if p.State != StatePaused && (p.RecheckAfter == 0 || p.RecheckAfter > RereadPeriod) {
		p.RecheckAfter = RereadPeriod
	}
	return p
}

// obstacle describes the most frequent problem of the deployment's machines, or "".
func (p Progress) obstacle() string {
	if len(p.Waiting) == 0 {
		return ""
	}
	g := p.Waiting[0]
	text := fmt.Sprintf("%s: %s", wording.Count(g.Count, "machine"), g.Explanation)
	if message := printer.Sanitize(g.Message); message != "" {
		text += " " + message
	}
	return fmt.Sprintf("%s (machinist why machine/%s)", strings.TrimSuffix(text, "."), g.Machines[0])
}

// isRetried reports whether the controller retries soon after a failure with this reason.
func isRetried(reason string) bool { return reason == v1beta1.ReasonMachineSetCreateError }

// Line describes the progress in one line of text.
func (p Progress) Line() string {
	name := "machinedeployment " + fmt.Sprintf("%q", p.Name)
	numbers := fmt.Sprintf("%d of %d updated, %d old left, %d available", p.Updated, p.Replicas, p.Old, p.Available)
	because := ""
	if p.Message != "" {
		because = ": " + printer.Sanitize(p.Message)
	}
	if obstacle := p.obstacle(); obstacle != "" {
		because = strings.TrimSuffix(because, ".") + ". " + obstacle
	}
	switch p.State {
	case StateComplete:
		return name + " successfully rolled out"
	case StatePartitioned:
		return fmt.Sprintf("%s rolled out up to its partition: %s%s", name, numbers, because)
	case StateFailed:
		return fmt.Sprintf("%s failed to roll out (%s)%s", name, p.Reason, because)
	case StateUnobserved:
		return fmt.Sprintf("Waiting for the controller to process the latest change of %s%s", name, because)
	case StatePaused:
		return fmt.Sprintf("Waiting for %s to be resumed (machinist rollout resume): %s%s", name, numbers, because)
	}
	return fmt.Sprintf("Waiting for %s to roll out: %s%s", name, numbers, because)
}

// Picture returns lines with a progress bar and what the rollout waits for. 0 columns means no limit.
func (p Progress) Picture(s printer.Style, columns int) []string {
	const bar = 20
	numbers := fmt.Sprintf(" %d/%d updated  %d available  %d old left", p.Updated, p.Replicas, p.Available, p.Old)
	if unavailable := p.Machines - p.Available; unavailable > 0 {
		numbers += fmt.Sprintf("  %d not available yet", unavailable)
	}
	title := fmt.Sprintf("machinedeployment/%s", p.Name)
	if p.Revision > 0 {
		title += fmt.Sprintf("  revision %d", p.Revision)
	}
	state := map[State]string{StateUnobserved: "not processed yet", StateFailed: "failed: " + p.Reason,
		StatePaused: "paused, until you run machinist rollout resume", StateComplete: "complete",
		StatePartitioned: "complete up to the partition"}[p.State]
	if state != "" {
		title += "  " + state
	}
	lines := []string{printer.Shorten(title, columns)}
	if columns >= 1 && columns < bar+10 {
		lines = append(lines, printer.Shorten(strings.TrimSpace(numbers), columns))
	} else {
		lines = append(lines, printer.Bar(s, p.Updated-min(p.Updated, max(0, p.Machines-p.Available)), p.Replicas,
			bar)+printer.Shorten(numbers, max(0, columns-bar)))
	}
	if p.Message != "" {
		lines = append(lines, printer.Shorten(printer.Sanitize(p.Message), columns))
	}
	if obstacle := p.obstacle(); obstacle != "" {
		lines = append(lines, printer.Shorten(obstacle, columns))
	}
	for _, f := range p.failuresOfRollout() {
		lines = append(lines, printer.Shorten("last failure: "+f.Line(p.Now), columns))
		break
	}
	return lines
}

// failuresOfRollout returns the failures since the start of the rollout, including those of replaced machines.
func (p Progress) failuresOfRollout() []why.Failure {
	return slices.DeleteFunc(slices.Clone(p.RecentFailures), func(f why.Failure) bool {
		return p.StartTime == nil || f.Since == nil || f.Since.Before(*p.StartTime)
	})
}

// Text writes the progress as one line.
func (p Progress) Text(w io.Writer, s printer.Style) error {
	line := p.Line()
	switch p.State {
	case StateComplete, StatePartitioned:
		line = s.Green(line)
	case StateFailed:
		line = s.Red(line)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// Err returns why the rollout failed, or nil.
func (p Progress) Err() error {
	if p.State != StateFailed {
		return nil
	}
	text := p.Line()
	for i, m := range p.FailedMachines {
		if i == 3 {
			text += fmt.Sprintf("\n  and %d more", len(p.FailedMachines)-i)
			break
		}
		text += fmt.Sprintf("\n  machine %s: %s", m.Name, printer.Sanitize(m.Reason+": "+m.Message))
	}
	if len(p.FailedMachines) == 0 {
		for _, f := range p.failuresOfRollout() {
			text += "\n  " + f.Line(p.Now)
		}
	}
	switch p.Reason {
	case v1beta1.ReasonRevisionFailing, v1beta1.ReasonProgressDeadlineExceeded:
		text += fmt.Sprintf("\nTo go back: machinist rollout undo machinedeployment/%s", p.Name)
	case machinedeployment.ReasonInvalidSelector, v1beta1.ReasonInvalidConfiguration:
		text += "\nThe controller does not try again until the deployment is changed."
	}
	return fmt.Errorf("%s", text)
}
