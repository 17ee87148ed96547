package machine

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/machine/drain"
	"machinist.dev/machinist/internal/machine/interruption"
	"machinist.dev/machinist/internal/machine/machinestate"
	"machinist.dev/machinist/internal/machine/preservation"
)

// interruptionMargin is the time between the end of the drain and the interruption. The kubelet needs this time to
// report that the last pods have ended.
const interruptionMargin = 5 * time.Second

type announcement struct {
	reason, source string
	// reclaimTime is the time at which the cloud will reclaim the instance. If the cloud has not announced a time,
	// this is an estimate based on the current time, and exact is false.
	reclaimTime time.Time
	exact       bool
}

// currentAnnouncement returns the current announcement of the provider or the Node. If the provider or the Node could
// not be asked, known is false, and a missing announcement proves nothing.
func (p *pass) currentAnnouncement() (a announcement, found, known bool) {
	known = p.Target == nil || p.node != nil || p.machine.Status.NodeRef == nil
	if n, ok := p.Signals.Find(p.node); ok {
		a, found = announcement{reason: n.Reason, source: n.Source, reclaimTime: p.now.Add(n.Lead)}, true
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
	if !polled.reclaimTime.IsZero() {
		a.reclaimTime, a.exact = polled.reclaimTime, true
	} else if !found {
		a.reclaimTime = p.now.Add(interruption.DefaultLead)
	}
	return a, true, true
}

func (p *pass) observeInterruption() {
	m := p.machine
	if m.IsReplacing() {
		return // The old instance is being deleted in any case.
	}
	a, found, known := p.currentAnnouncement()
	if !found {
		if known && machinestate.IsInterrupted(m) {
			p.withdrawInterruption()
		}
		return
	}
	// The time in the status was estimated when the signal was first seen. The estimate is replaced only by an earlier
	// time or by an exact time.
	if at := metav1.NewTime(a.reclaimTime.Truncate(time.Second)); m.Status.InterruptionTime == nil || a.exact ||
		at.Before(m.Status.InterruptionTime) {
		m.Status.InterruptionTime = &at
	}
	about := "at about"
	if a.exact {
		about = "at"
	}
	message := fmt.Sprintf("The cloud will reclaim the instance %s %s, as announced by %s.", about,
		m.Status.InterruptionTime.UTC().Format(time.RFC3339), a.source)
	noticed := !machinestate.IsInterrupted(m)
	if p.setCondition(v1beta1.ConditionInterruptionNotice, true, a.reason, message) && noticed {
		p.warn(a.reason, "Interrupt", message)
	}
}

// withdrawInterruption reverts everything that was done because of a notice. The withdrawal is written to the status
// before the Node is uncordoned. If an owner has seen the notice in the meantime, the owner deletes the Machine, and
// the Node stays cordoned.
func (p *pass) withdrawInterruption() {
	const message = "The interruption is no longer announced."
	p.machine.Status.InterruptionTime = nil
	p.setCondition(v1beta1.ConditionInterruptionNotice, false, v1beta1.ReasonInterruptionWithdrawn, message)
	p.note(v1beta1.ReasonInterruptionWithdrawn, "Interrupt", message)
	if p.machine.DeletionTimestamp.IsZero() {
		p.endDrain()
		p.requeueIn(time.Millisecond)
	}
}

func forgetNotice(m *v1beta1.Machine) {
	m.Status.InterruptionTime = nil
	dropCondition(&m.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// recordInterruption records an announced interruption. It reports whether the Node must be drained now.
func (p *pass) recordInterruption(ctx context.Context) (drains bool, err error) {
	p.observeInterruption()
	m := p.machine
	if !machinestate.IsInterrupted(m) || m.IsReplacing() || m.Status.FailureReason != "" || p.node == nil ||
		machinestate.IsPaused(m) || p.unsupportedSchema(m) != "" || preservation.IsPreserved(m) || p.outage() {
		return false, nil
	}
	if !machinestate.IsInterrupted(p.original) {
		// Write the status now, because the owner may react to it immediately. Later steps need the recorded time, even
		// if this process crashes.
		p.summarize()
		if err := p.writeStatus(ctx); err != nil {
			return false, err
		}
		m = p.machine
	}
	if len(m.Spec.LifecycleHooks.PreDrain) > 0 {
		// The owners of preDrain hooks must agree before pods are evicted. The hooks delay the deletion of the Machine
		// until their owners agree.
		node, err := drain.Cordon(ctx, p.Target.Nodes, p.node)
		if err == nil {
			p.node = node
		}
		return false, err
	}
	return true, nil
}

func (p *pass) observeInDeletion(ctx context.Context) (progress, error) {
	p.observeInterruption()
	if !machinestate.IsInterrupted(p.machine) || machinestate.IsInterrupted(p.original) {
		return next, nil
	}
	return next, p.writeStatus(ctx)
}

func (p *pass) announcedByNodeOnly() bool {
	_, shown := p.Signals.Find(p.node)
	return shown && machinestate.IsInterrupted(p.machine) && p.states.get(p.machine).instance.polled.reason == ""
}
