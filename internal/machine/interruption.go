package machine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/machinestate"
	"machinist.dev/machinist/internal/preservation"
)

// interruptionMargin is how long before an interruption the drain ends: the kubelet still has to report that the
// last pods have ended.
const interruptionMargin = 5 * time.Second

// interrupted reports whether the cloud has announced that it reclaims the Machine's instance.
func interrupted(m *v1beta1.Machine) bool {
	return machinestate.Interrupted(m)
}

// announcement is an announced interruption, and its source.
type announcement struct {
	reason, source string
	// at is when the cloud reclaims the instance. It is exact if the cloud gave the time, else estimated from now.
	at    time.Time
	exact bool
}

// announced returns what the provider and the Node say now. known is false where one of them cannot be asked, so that
// their silence means nothing.
func (p *pass) announced() (a announcement, found, known bool) {
	known = p.Target == nil || p.node != nil || p.machine.Status.NodeRef == nil
	if n, ok := p.Signals.Of(p.node); ok {
		a, found = announcement{reason: n.Reason, source: n.Source, at: p.now.Add(n.Lead)}, true
	}
	if p.Interrupter == nil {
		return a, found, known
	}
	polled := p.states.get(p.machine).instance.polled
	if polled.providerID != p.machine.Spec.ProviderID {
		return a, found, false
	}
	if polled.reason == "" {
		return a, found, known
	}
	a.reason, a.source = polled.reason, "the provider"
	if !polled.at.IsZero() {
		a.at, a.exact = polled.at, true
	} else if !found {
		a.at = p.now.Add(interruption.DefaultLead)
	}
	return a, true, true
}

// noteInterruption brings the condition InterruptionNotice up to date.
func (p *pass) noteInterruption() {
	m := p.machine
	if m.Replacing() {
		return // The old instance is being removed in any case.
	}
	a, found, known := p.announced()
	if !found {
		if known && interrupted(m) {
			p.withdrawInterruption()
		}
		return
	}
	// An estimate that was written down stays, unless there is less time left than it said: it began when the signal was
	// first seen.
	if at := metav1.NewTime(a.at.Truncate(time.Second)); m.Status.InterruptionTime == nil || a.exact ||
		at.Before(m.Status.InterruptionTime) {
		m.Status.InterruptionTime = &at
	}
	about := "at about"
	if a.exact {
		about = "at"
	}
	message := fmt.Sprintf("The cloud reclaims the instance %s %s: announced by %s.", about,
		m.Status.InterruptionTime.UTC().Format(time.RFC3339), a.source)
	noticed := !interrupted(m)
	if p.setCondition(v1beta1.ConditionInterruptionNotice, true, a.reason, message) && noticed {
		p.warn(a.reason, "Interrupt", message)
		p.noticed = a.reason
	}
}

// withdrawInterruption takes back what was done because of a notice. The Node is uncordoned as after an update, but
// not before the withdrawal is written: an owner that acts upon the notice until then deletes the Machine, and its
// Node stays cordoned.
func (p *pass) withdrawInterruption() {
	const message = "The interruption is no longer announced."
	p.machine.Status.InterruptionTime = nil
	p.setCondition(v1beta1.ConditionInterruptionNotice, false, v1beta1.ReasonInterruptionWithdrawn, message)
	p.note(v1beta1.ReasonInterruptionWithdrawn, "Interrupt", message)
	if p.machine.DeletionTimestamp.IsZero() {
		p.endDrain()
		p.withdrawn = true
		p.requeueIn(time.Millisecond)
	}
}

// forgetInterruption drops what was announced of an instance that is gone.
func (p *pass) forgetInterruption() {
	p.machine.Status.InterruptionTime = nil
	dropCondition(&p.machine.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// heedInterruption notes an announced interruption and then drains the Node at once, whether or not
// somebody deletes the Machine: nothing keeps the pods there any longer. A deletion goes on with the same drain.
func (p *pass) heedInterruption(ctx context.Context) (progress, error) {
	p.noteInterruption()
	m := p.machine
	if !interrupted(m) || m.Replacing() || m.Status.FailureReason != "" || p.node == nil ||
		paused(m) || unsupportedSchema(m) != "" || preservation.Preserved(m) || p.outage() {
		return next, nil
	}
	if p.noticed != "" {
		// Its owner may act at once, and what follows goes by the time that is written down, whatever becomes of this
		// process.
		p.summarize()
		if err := p.writeStatus(ctx); err != nil {
			return wait, err
		}
		m = p.machine
	}
	if len(m.Spec.LifecycleHooks.PreDrain) > 0 {
		// Whoever has a hook wants to be asked before pods go, which the deletion does.
		node, err := drain.Cordon(ctx, p.Target.Nodes, p.node)
		if err == nil {
			p.node = node
		}
		return progress(err == nil), err
	}
	p.interrupting = true
	defer func() { p.interrupting = false }()
	if _, err := p.drain(ctx); err != nil {
		return wait, err
	}
	return progress(p.node != nil), nil
}

// noteInterruptionInDeletion is heedInterruption for a Machine whose Node is about to be drained anyway.
func (p *pass) noteInterruptionInDeletion(ctx context.Context) (progress, error) {
	p.noteInterruption()
	if p.noticed == "" {
		return next, nil
	}
	return next, p.writeStatus(ctx)
}

// shownByNode reports whether the drain ends early because only the Node announces the interruption, and
// the provider does not say it.
func (p *pass) shownByNode() bool {
	_, shown := p.Signals.Of(p.node)
	return shown && interrupted(p.machine) && p.states.get(p.machine).instance.polled.reason == ""
}

// drainDeadline is when a drain that began at start ends. Before an announced interruption that is a moment
// before, in however little time that leaves.
func (p *pass) drainDeadline(start time.Time) time.Time {
	end := start.Add(p.machine.Spec.Timeouts.DrainOrDefault())
	if at := p.machine.Status.InterruptionTime; interrupted(p.machine) && at != nil {
		if early := at.Add(-interruptionMargin); early.Before(end) {
			end = early
		}
	}
	return end
}
