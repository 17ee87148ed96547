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

// Slots limits the number of creations that run in the cloud at the same time. Machines get slots in the order of their
// requests.
type Slots interface {
	// Acquire reports whether the Machine has a slot. Otherwise, the method adds the Machine to the queue.
	Acquire(machine types.NamespacedName) bool
	// Occupy takes a slot for a creation that another process has started.
	Occupy(machine types.NamespacedName)
	// Release releases a Machine's slot, or removes the Machine from the queue.
	Release(machine types.NamespacedName)
	// Limit returns the number of slots.
	Limit() int
	// Source enqueues Machines that have got a slot. It is nil if the number of creations is not limited.
	Source() source.Source
}

type unlimited struct{}

func (unlimited) Acquire(types.NamespacedName) bool { return true }
func (unlimited) Occupy(types.NamespacedName)       {}
func (unlimited) Release(types.NamespacedName)      {}
func (unlimited) Limit() int                        { return 0 }
func (unlimited) Source() source.Source             { return nil }

// silentWait is how long a Machine waits for a slot before its status reports this. Most Machines get a slot earlier,
// so that no write is needed.
const silentWait = 30 * time.Second

func (p *pass) acquireSlot() bool {
	return p.Slots.Acquire(client.ObjectKeyFromObject(p.machine))
}

// awaitSlot waits until fewer creations run. A waiting machine does not fail, because its time to become a Node starts
// when it gets the slot.
func (p *pass) awaitSlot() progress {
	return onSlot | p.waitSilently(fmt.Sprintf("Waiting until fewer than %d creations of instances run at the same time.",
		p.Slots.Limit()))
}

// waitSilently makes the launch wait. The wait is reported only after silentWait. Before silentWait ends, the result
// is silently.
func (p *pass) waitSilently(message string) progress {
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && isTrying(launched.Reason) || refusedByProvider(p.machine) {
		return next // The failure of the last attempt is more useful.
	}
	if launched == nil || launched.Reason == v1beta1.ReasonReplacing {
		since := p.now
		p.states.update(p.machine, func(m *machineState) {
			if m.launch.queuedSince.IsZero() {
				m.launch.queuedSince = p.now
			}
			since = m.launch.queuedSince
		})
		if left := since.Add(silentWait).Sub(p.now); left > 0 {
			return silently | p.after(left)
		}
	}
	p.setCondition(v1beta1.ConditionLaunched, false, v1beta1.ReasonPending, message)
	return next
}

// keepsSlot reports whether the Machine keeps its slot, or its place in the queue, after a pass that waits for the
// given triggers.
func (p *pass) keepsSlot(waits progress) bool {
	m := p.machine
	if !m.DeletionTimestamp.IsZero() {
		return false
	}
	pending := m.Spec.ProviderID != "" && m.Status.Instance != nil && m.Status.Instance.State == v1beta1.InstancePending
	if pending && m.Status.NodeRef == nil && m.Status.FailureReason == "" {
		p.Slots.Occupy(client.ObjectKeyFromObject(m))
		return true
	}
	return waits&onSlot != 0
}
