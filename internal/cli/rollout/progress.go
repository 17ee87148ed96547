// Package rollout says how the rollouts of a MachineDeployment stand, what there is to go back to, and what going back
// would change. It asks nobody: its functions make views of objects.
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

// State says how far a rollout is. All commands use these words.
type State string

const (
	// Deleting: the deployment is being deleted.
	Deleting State = "Deleting"
	// Frozen: it is stopped for safety, or by a label.
	Frozen State = "Frozen"
	// Failed: it does not get on by itself.
	Failed State = "Failed"
	// Unobserved: the controller has not acted upon the latest change yet.
	Unobserved State = "Unobserved"
	// Complete: all machines are of the newest revision and available.
	Complete State = "Complete"
	// Paused: it waits for somebody to resume it.
	Paused State = "Paused"
	// Scaling: there is nothing to roll out, and machines come up or go.
	Scaling State = "Scaling"
	// Waiting: it waits for people to delete or to select machines, or to upgrade the control plane.
	Waiting State = "Waiting"
	// Progressing: it is under way.
	Progressing State = "Progressing"
)

// stateOf returns the state of a deployment's rollout at a time of the API server, and why: a reason and a message.
// again is when to judge again without an event, 0 if never.
func stateOf(d *v1beta1.MachineDeployment, now time.Time) (state State, reason, message string, again time.Duration) {
	s, replicas := d.Status, d.ReplicasOrDefault()
	find := func(kind string) *metav1.Condition { return meta.FindStatusCondition(s.Conditions, kind) }
	progressing, rolling, frozen := find(v1beta1.ConditionProgressing), find(v1beta1.ConditionRollingOut), find(v1beta1.ConditionFrozen)
	settled := rolling != nil && rolling.Status == metav1.ConditionFalse
	of := func(state State, c *metav1.Condition) (State, string, string, time.Duration) {
		return state, c.Reason, c.Message, 0
	}
	switch {
	case d.DeletionTimestamp != nil:
		return Deleting, "", "", 0
	case frozen != nil && frozen.Status == metav1.ConditionTrue:
		return of(Frozen, frozen)
	case progressing != nil && progressing.Status == metav1.ConditionFalse &&
		progressing.ObservedGeneration == d.Generation && !mayPass(progressing.Reason):
		// What was refused leaves the generation unobserved, so this comes first.
		return of(Failed, progressing)
	case s.ObservedGeneration < d.Generation && progressing != nil && progressing.ObservedGeneration == d.Generation:
		return of(Unobserved, progressing)
	case s.ObservedGeneration < d.Generation, rolling == nil && progressing == nil:
		return Unobserved, why.Unobserved, "The latest change has not been acted upon yet.", 0
	case settled && s.UpdatedReplicas == replicas && s.Replicas == replicas && s.AvailableReplicas >= replicas:
		// A restart that was just asked for shows nowhere yet, and what was complete before it is not what is asked about.
		if due := d.Spec.RolloutAfter; due != nil && replicas > 0 && !d.Spec.Paused &&
			rolling.LastTransitionTime.Before(due) && now.Sub(due.Time).Abs() < aboutToBegin {
			return Unobserved, rolling.Reason, "The machines are about to be renewed.", due.Add(aboutToBegin).Sub(now)
		}
		return of(Complete, rolling)
	case rolling == nil:
		return of(Progressing, progressing)
	case d.Spec.Paused:
		return of(Paused, rolling)
	case settled:
		return of(Scaling, rolling)
	case rolling.Reason == v1beta1.ReasonWaitingForDeletion, rolling.Reason == v1beta1.ReasonWaitingForSelection,
		rolling.Reason == v1beta1.ReasonVersionSkew:
		return of(Waiting, rolling)
	}
	return of(Progressing, rolling)
}

// Progress is how a rollout stands.
type Progress struct {
	// Kind is RolloutStatus.
	Kind      string `json:"kind"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	State     State  `json:"state"`
	// Revision is the number of the newest revision.
	Revision int64 `json:"revision"`
	// Replicas is how many machines are wanted; Machines how many there are, of which Updated are of the newest revision
	// and Old of others; Available is how many are available.
	Replicas  int32 `json:"replicas"`
	Machines  int32 `json:"machines"`
	Updated   int32 `json:"updated"`
	Old       int32 `json:"old"`
	Available int32 `json:"available"`
	// Reason is that of the condition which says most now, Message is its message.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// FailedMachines describes some of the machines that failed.
	FailedMachines []v1beta1.FailedMachine `json:"failedMachines,omitempty"`
	// RecentFailures are the last machines that failed, newest first. They may be repaired or gone.
	RecentFailures []why.Failure `json:"recentFailures,omitempty"`
	// Began is when the rollout began, nil without a rollout.
	Began *time.Time `json:"began,omitempty"`
	// Now is the time at which it was so.
	Now time.Time `json:"-"`
	// Waiting is what machines wait for that somebody has to mend.
	Waiting []why.Group `json:"waiting,omitempty"`
	// Again is when to judge again without news, 0 if never.
	Again time.Duration `json:"-"`
}

// aboutToBegin is how long a controller whose clock is behind may take until a restart begins.
const aboutToBegin = 10 * time.Second

// Judge says how the deployment's rollout stands at a time of the API server.
func Judge(d *v1beta1.MachineDeployment, now time.Time) Progress {
	s := d.Status
	p := Progress{
		Kind: "RolloutStatus", Namespace: d.Namespace, Name: d.Name, Revision: s.CurrentRevision,
		Replicas: d.ReplicasOrDefault(),
		Machines: s.Replicas, Updated: s.UpdatedReplicas, Old: max(0, s.Replicas-s.UpdatedReplicas),
		Available:      s.AvailableReplicas,
		FailedMachines: s.FailedMachines, RecentFailures: why.FailuresOf(d), Now: now,
	}
	if c := meta.FindStatusCondition(s.Conditions, v1beta1.ConditionRollingOut); c != nil &&
		c.Status == metav1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		began := c.LastTransitionTime.UTC()
		p.Began = &began
	}
	p.State, p.Reason, p.Message, p.Again = stateOf(d, now)
	return p
}

// RereadPeriod is how long what machines wait for is shown before the machines are read again: a large fleet is a
// large list.
const RereadPeriod = 10 * time.Second

// WithMachines returns the progress with what the deployment's machines wait for that somebody has to mend.
func (p Progress) WithMachines(machines []*v1beta1.Machine, now time.Time) Progress {
	if p.State == Complete {
		return p
	}
	p.Waiting = slices.DeleteFunc(why.Groups(machines, func(m *v1beta1.Machine) string { return m.Name }),
		func(g why.Group) bool { return g.Ordinary(now) })
	if p.State != Paused && (p.Again == 0 || p.Again > RereadPeriod) {
		p.Again = RereadPeriod
	}
	return p
}

// obstacle says what most of the machines that get no further wait for, "" if there are none.
func (p Progress) obstacle() string {
	if len(p.Waiting) == 0 {
		return ""
	}
	g := p.Waiting[0]
	words := fmt.Sprintf("%s: %s", wording.Count(g.Count, "machine"), g.Explanation)
	if message := printer.Clean(g.Message); message != "" {
		words += " " + message
	}
	return fmt.Sprintf("%s (machinist why machine/%s)", strings.TrimSuffix(words, "."), g.Machines[0])
}

// mayPass tells reasons for which the controller tries again by itself, soon.
func mayPass(reason string) bool { return reason == v1beta1.ReasonMachineSetCreateError }

// Line says it in one line.
func (p Progress) Line() string {
	name := "machinedeployment " + fmt.Sprintf("%q", p.Name)
	numbers := fmt.Sprintf("%d of %d updated, %d old left, %d available", p.Updated, p.Replicas, p.Old, p.Available)
	because := ""
	if p.Message != "" {
		because = ": " + printer.Clean(p.Message)
	}
	if obstacle := p.obstacle(); obstacle != "" {
		because = strings.TrimSuffix(because, ".") + ". " + obstacle
	}
	switch p.State {
	case Complete:
		return name + " successfully rolled out"
	case Failed:
		return fmt.Sprintf("%s does not roll out (%s)%s", name, p.Reason, because)
	case Unobserved:
		return fmt.Sprintf("Waiting for the controller to act upon the latest change of %s%s", name, because)
	case Paused:
		return fmt.Sprintf("Waiting for %s to be resumed (machinist rollout resume): %s%s", name, numbers, because)
	}
	return fmt.Sprintf("Waiting for %s to roll out: %s%s", name, numbers, because)
}

// Picture says it in a bar and what is waited for, on a terminal of that many columns.
func (p Progress) Picture(s printer.Style, columns int) []string {
	const bar = 20
	numbers := fmt.Sprintf(" %d/%d updated  %d available  %d old left", p.Updated, p.Replicas, p.Available, p.Old)
	if coming := p.Machines - p.Available; coming > 0 {
		numbers += fmt.Sprintf("  %d not available yet", coming)
	}
	title := fmt.Sprintf("machinedeployment/%s", p.Name)
	if p.Revision > 0 {
		title += fmt.Sprintf("  revision %d", p.Revision)
	}
	state := map[State]string{Unobserved: "not acted upon yet", Paused: "paused: waits for machinist rollout resume",
		Failed: "stopped: " + p.Reason, Complete: "complete"}[p.State]
	if state != "" {
		title += "  " + state
	}
	lines := []string{printer.Fit(title, columns)}
	if columns >= 1 && columns < bar+10 {
		lines = append(lines, printer.Fit(strings.TrimSpace(numbers), columns))
	} else {
		lines = append(lines, printer.Bar(s, p.Updated-min(p.Updated, max(0, p.Machines-p.Available)), p.Replicas,
			bar)+printer.Fit(numbers, max(0, columns-bar)))
	}
	if p.Message != "" {
		lines = append(lines, printer.Fit(printer.Clean(p.Message), columns))
	}
	if obstacle := p.obstacle(); obstacle != "" {
		lines = append(lines, printer.Fit(obstacle, columns))
	}
	for _, f := range p.sinceBegan() {
		lines = append(lines, printer.Fit("last failure: "+f.Line(p.Now), columns))
		break
	}
	return lines
}

// sinceBegan returns the machines that failed since the rollout began, also those that were replaced.
func (p Progress) sinceBegan() []why.Failure {
	return slices.DeleteFunc(slices.Clone(p.RecentFailures), func(f why.Failure) bool {
		return p.Began == nil || f.Since == nil || f.Since.Before(*p.Began)
	})
}

// Text implements the view of a command.
func (p Progress) Text(w io.Writer, s printer.Style) error {
	line := p.Line()
	switch p.State {
	case Complete:
		line = s.Good(line)
	case Failed:
		line = s.Bad(line)
	}
	_, err := fmt.Fprintln(w, line)
	return err
}

// Err says why a rollout that failed did, nil if it did not.
func (p Progress) Err() error {
	if p.State != Failed {
		return nil
	}
	words := p.Line()
	for i, m := range p.FailedMachines {
		if i == 3 {
			words += fmt.Sprintf("\n  and %d more", len(p.FailedMachines)-i)
			break
		}
		words += fmt.Sprintf("\n  machine %s: %s", m.Name, printer.Clean(m.Reason+": "+m.Message))
	}
	if len(p.FailedMachines) == 0 {
		for _, f := range p.sinceBegan() {
			words += "\n  " + f.Line(p.Now)
		}
	}
	switch p.Reason {
	case v1beta1.ReasonRevisionFailing, v1beta1.ReasonProgressDeadlineExceeded:
		words += fmt.Sprintf("\nTo go back: machinist rollout undo machinedeployment/%s", p.Name)
	case machinedeployment.ReasonInvalidSelector, v1beta1.ReasonInvalidConfiguration:
		words += "\nNothing is tried until the deployment is changed."
	}
	return fmt.Errorf("%s", words)
}
