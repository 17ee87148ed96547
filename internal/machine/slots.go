package machine

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"machinist.dev/machinist/api/v1beta1"
)

// Slots bound how many creations are under way at the cloud at a time, first come, first served.
type Slots interface {
	// Acquire gives a Machine a slot, or puts it into the queue for one.
	Acquire(machine types.NamespacedName) bool
	// Occupy counts a creation that another process began.
	Occupy(machine types.NamespacedName)
	// Release gives up a Machine's slot, or its position in the queue.
	Release(machine types.NamespacedName)
	// Limit is the number of slots.
	Limit() int
	// Source enqueues the Machines that have got a slot; nil where there is no limit.
	Source() source.Source
}

// unlimited always has a free slot.
type unlimited struct{}

func (unlimited) Acquire(types.NamespacedName) bool { return true }
func (unlimited) Occupy(types.NamespacedName)       {}
func (unlimited) Release(types.NamespacedName)      {}
func (unlimited) Limit() int                        { return 0 }
func (unlimited) Source() source.Source             { return nil }

// silentWait is how long a Machine waits for a slot before its status reports it: most waits are shorter, and not
// worth a write.
const silentWait = 30 * time.Second

// acquireSlot reports whether the Machine has a slot, and waits in the queue for one if not.
func (s *launchStep) acquireSlot() bool {
	return s.Slots.Acquire(client.ObjectKeyFromObject(s.machine))
}

// awaitSlot waits until fewer creations are under way. That is no failure of the machine, and its time to become a Node
// begins with its slot.
func (s *launchStep) awaitSlot() progress {
	s.queued = true
	s.waitSilently(fmt.Sprintf("Waiting for one of the %d slots for creations.", s.Slots.Limit()))
	return onSlot
}

// waitSilently waits for a precondition of the launch, and reports that after silentWait.
func (s *launchStep) waitSilently(message string) {
	launched := meta.FindStatusCondition(s.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && isTrying(launched.Reason) || s.refusedByProvider() {
		return // Why the last try failed is worth more.
	}
	if launched == nil || launched.Reason == v1beta1.ReasonReplacing {
		since := s.now
		s.states.update(s.machine, func(m *machineState) {
			if m.launch.queuedSince.IsZero() {
				m.launch.queuedSince = s.now
			}
			since = m.launch.queuedSince
		})
		if left := since.Add(silentWait).Sub(s.now); left > 0 {
			s.silent = true
			s.requeueIn(left)
			return
		}
	}
	s.setCondition(v1beta1.ConditionLaunched, false, v1beta1.ReasonPending, message)
}

// keepsSlot reports whether the Machine still needs its slot, or its position in the queue, after this pass.
func (s *launchStep) keepsSlot() bool {
	m := s.machine
	if !m.DeletionTimestamp.IsZero() {
		return false
	}
	pending := m.Spec.ProviderID != "" && m.Status.Instance != nil && m.Status.Instance.State == v1beta1.InstancePending
	if pending && m.Status.NodeRef == nil && m.Status.FailureReason == "" {
		s.Slots.Occupy(client.ObjectKeyFromObject(m))
		return true
	}
	return s.queued
}
