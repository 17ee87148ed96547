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
	// The field at contains the time at which the cloud will reclaim the instance. If the cloud has not announced the
	// time, it is an estimate based on the current time.
	at    time.Time
	exact bool
}

type interruptionStep struct {
	*pass
	// interrupting is true while the Node is drained because of an interruption notice. The field noticed contains the
	// reason of a notice that is new in this pass.
	interrupting bool
	noticed      string
	// withdrawn is true if this pass is the first one that has seen the withdrawal of a notice.
	withdrawn bool
}

// currentAnnouncement returns the current announcement of the provider or the Node. If one of them could not be asked,
// known is false, and a missing announcement proves nothing.
func (s *interruptionStep) currentAnnouncement() (a announcement, found, known bool) {
	known = s.Target == nil || s.node != nil || s.machine.Status.NodeRef == nil
	if n, ok := s.Signals.Of(s.node); ok {
		a, found = announcement{reason: n.Reason, source: n.Source, at: s.now.Add(n.Lead)}, true
	}
	if s.Interrupter == nil {
		return a, found, known
	}
	polled := s.states.get(s.machine).instance.polled
	if polled.providerID != s.machine.Spec.ProviderID {
		return a, found, false
	}
	if polled.reason == "" {
		return a, found, known
	}
	a.reason, a.source = polled.reason, "the provider"
	if !polled.at.IsZero() {
		a.at, a.exact = polled.at, true
	} else if !found {
		a.at = s.now.Add(interruption.DefaultLead)
	}
	return a, true, true
}

func (s *interruptionStep) observe() {
	m := s.machine
	if m.Replacing() {
		return // The old instance is being deleted in any case.
	}
	a, found, known := s.currentAnnouncement()
	if !found {
		if known && machinestate.Interrupted(m) {
			s.withdraw()
		}
		return
	}
	// The time in the status was estimated when the signal was first seen. Only an earlier or an exact time replaces
	// it.
	if at := metav1.NewTime(a.at.Truncate(time.Second)); m.Status.InterruptionTime == nil || a.exact ||
		at.Before(m.Status.InterruptionTime) {
		m.Status.InterruptionTime = &at
	}
	about := "at about"
	if a.exact {
		about = "at"
	}
	message := fmt.Sprintf("The cloud will reclaim the instance %s %s, as announced by %s.", about,
		m.Status.InterruptionTime.UTC().Format(time.RFC3339), a.source)
	noticed := !machinestate.Interrupted(m)
	if s.setCondition(v1beta1.ConditionInterruptionNotice, true, a.reason, message) && noticed {
		s.warn(a.reason, "Interrupt", message)
		s.noticed = a.reason
	}
}

// withdraw reverts everything that was done because of a notice. The Node is uncordoned only when the withdrawal is in
// the status. If an owner has seen the notice in the meantime, the owner deletes the Machine, and the Node stays
// cordoned.
func (s *interruptionStep) withdraw() {
	const message = "The interruption is no longer announced."
	s.machine.Status.InterruptionTime = nil
	s.setCondition(v1beta1.ConditionInterruptionNotice, false, v1beta1.ReasonInterruptionWithdrawn, message)
	s.note(v1beta1.ReasonInterruptionWithdrawn, "Interrupt", message)
	if s.machine.DeletionTimestamp.IsZero() {
		s.drain.end()
		s.withdrawn = true
		s.requeueIn(time.Millisecond)
	}
}

func (s *interruptionStep) forgetNotice() {
	s.machine.Status.InterruptionTime = nil
	dropCondition(&s.machine.Status.Conditions, v1beta1.ConditionInterruptionNotice)
}

// run records an announced interruption and drains the Node at once. There is no need to wait for the deletion of the
// Machine, because the pods must leave the Node in any case. A deletion continues the same drain.
func (s *interruptionStep) run(ctx context.Context) (progress, error) {
	s.observe()
	m := s.machine
	if !machinestate.Interrupted(m) || m.Replacing() || m.Status.FailureReason != "" || s.node == nil ||
		machinestate.Paused(m) || s.unsupportedSchema(m) != "" || preservation.Preserved(m) || s.outage() {
		return next, nil
	}
	if s.noticed != "" {
		// The owner may act at once. Later steps need the recorded time, even if this process crashes.
		s.summarize()
		if err := s.writeStatus(ctx); err != nil {
			return onError, err
		}
		m = s.machine
	}
	if len(m.Spec.LifecycleHooks.PreDrain) > 0 {
		// The owners of preDrain hooks must agree before pods are evicted. The deletion of the Machine asks these
		// owners.
		node, err := drain.Cordon(ctx, s.Target.Nodes, s.node)
		if err == nil {
			s.node = node
		}
		return onError.unless(err == nil), err
	}
	s.interrupting = true
	defer func() { s.interrupting = false }()
	if _, err := s.drain.run(ctx); err != nil {
		return onError, err
	}
	return onNode.unless(s.node != nil), nil // The Node is gone, but still in the cache.
}

func (s *interruptionStep) observeInDeletion(ctx context.Context) (progress, error) {
	s.observe()
	if s.noticed == "" {
		return next, nil
	}
	return next, s.writeStatus(ctx)
}

func (s *interruptionStep) announcedByNodeOnly() bool {
	_, shown := s.Signals.Of(s.node)
	return shown && machinestate.Interrupted(s.machine) && s.states.get(s.machine).instance.polled.reason == ""
}
