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

// Places bounds how many creations are under way at the cloud at a time, first come, first served.
type Slots interface {
	// Take gives a Machine a place, or puts it into the queue for one.
	Acquire(machine types.NamespacedName) bool
	// Hold counts a creation that another process began.
	Occupy(machine types.NamespacedName)
	// Leave gives up a Machine's place, or its turn.
	Release(machine types.NamespacedName)
	// Limit is how many places there are.
	Limit() int
	// Wakes brings the Machines whose turn it is; nil where nobody ever waits.
	Source() source.Source
}

// unlimited has a place for everybody.
type unlimited struct{}

func (unlimited) Acquire(types.NamespacedName) bool { return true }
func (unlimited) Occupy(types.NamespacedName)       {}
func (unlimited) Release(types.NamespacedName)      {}
func (unlimited) Limit() int                        { return 0 }
func (unlimited) Source() source.Source             { return nil }

// silentWait is how long a Machine waits for a place before its status says so: most waits are shorter than that, and not
// worth a write.
const silentWait = 30 * time.Second

// awaitPlace waits until fewer creations are under way. That is no failure of the machine, and its time to become a Node
// begins with its place.
func (p *pass) awaitSlot() progress {
	p.queued = true
	p.waitSilently(fmt.Sprintf("Waiting for one of the %d places for creations under way.", p.Slots.Limit()))
	return wait
}

// waitSilently waits for something that has yet to be there before the launch can begin, and says so if that takes long.
func (p *pass) waitSilently(message string) {
	launched := meta.FindStatusCondition(p.machine.Status.Conditions, v1beta1.ConditionLaunched)
	if launched != nil && isTrying(launched.Reason) || p.refusedByProvider() {
		return // Why the last try failed is worth more.
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
			p.silent = true
			p.requeueIn(left)
			return
		}
	}
	p.setCondition(v1beta1.ConditionLaunched, false, v1beta1.ReasonPending, message)
}

// keepsPlace reports whether the Machine has a use for its place, or its turn, after this pass.
func (p *pass) keepsSlot() bool {
	m := p.machine
	if !m.DeletionTimestamp.IsZero() {
		return false
	}
	pending := m.Spec.ProviderID != "" && m.Status.Instance != nil && m.Status.Instance.State == v1beta1.InstancePending
	if pending && m.Status.NodeRef == nil && m.Status.FailureReason == "" {
		p.Slots.Occupy(client.ObjectKeyFromObject(m))
		return true
	}
	return p.queued
}
