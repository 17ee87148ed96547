package machine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/keylock"
	"machinist.dev/machinist/internal/platform/objectstate"
	"machinist.dev/machinist/pkg/provider"
)

// stateStore contains everything that a Reconciler remembers between passes. The loss of this memory in a restart
// causes additional calls and waits for the settle time, but never wrong decisions.
type stateStore struct {
	// preserving contains a lock for each owner of preserved machines. The lock is held while the preserved machines
	// are counted and another machine is preserved.
	preserving keylock.Locks

	machines objectstate.Store[machineState]

	mu    sync.Mutex
	began time.Time
	// adoptingMachines contains the Machine that is adopting an instance now, by the provider ID of the instance. It
	// is empty between passes.
	adoptingMachines map[string]types.UID
	// creationEndTimes contains the time at which the Create or Adopt of the recorded instance ended in this process,
	// by the UID of the Machine. An entry is kept for as long as the cloud may fail to show the instance.
	creationEndTimes map[types.UID]time.Time
	// sweepAt is the length of created at which old entries are removed.
	sweepAt int
}

// machineState is what the process remembers of one Machine. Each field belongs to one step.
type machineState struct {
	pace         pace
	launch       launchState
	instance     instanceState
	registration registrationState
	teardown     teardownState
	update       updateState
	joined       joinedState
}

type launchState struct {
	// ambiguousAt is the time of this process's last Create whose result is unknown.
	ambiguousAt time.Time
	// ownToken is true if no other process can have created a bootstrap token for the Machine. The field token is true
	// if this process may have created a bootstrap token. Both fields become false when the token is deleted.
	ownToken, token bool
	// extendTokenAt is the time at which the bootstrap token must be checked or extended. extendTokenAt is zero if
	// the token has not been checked yet.
	extendTokenAt time.Time
	queuedSince   time.Time
	// requestedClass is the class of this process's last Create. The field wasExhausted is true if the cloud had no
	// capacity for the class before that Create. If the instance runs, the cloud has capacity again.
	requestedClass string
	wasExhausted   bool
	// awaitedCapacity is true after the first pass in the step AwaitingCapacity. The field seenRetry is the annotation
	// with which an administrator had requested a retry at that time. Another value requests an attempt now.
	awaitedCapacity bool
	seenRetry       string
}

type updateState struct {
	// begun is true if only this process can have requested the current update of the instance.
	begun bool
	// ambiguousAt is the time of this process's last update request that got no answer. The field ambiguous is the
	// fingerprint of this request, or "" if there were several different requests.
	ambiguousAt time.Time
	ambiguous   string
}

type instanceState struct {
	// missingSince is the time of the first NotFound answer for the recorded instance. missingSince is zero if there
	// was no such answer, or if there is newer evidence that the instance exists.
	missingSince time.Time
	// deniedAt is the time of the last check in which the witnesses showed that NotFound is not reliable. deniedAt
	// becomes zero when the instance is found.
	deniedAt time.Time
	// isUnseen is true if the Node became Ready before the cloud showed the instance.
	isUnseen bool
	// booted contains the instance that the provider returned when the instance was first seen running. After the
	// instance is written to the status, booted is nil.
	booted      *booted
	getFailures int32
	// confirmedID is the provider ID of the instance that the cloud has returned with the tags of the Machine.
	// confirmedID is "" after the Node has got the mark, which replaces this memory.
	confirmedID string
	// suspectID is the provider ID of an instance that another part of the process has reported as missing.
	suspectID string
	polled    polledInterruption
	// isConfirmed is true if the provider has confirmed that the instance of an unhealthy Node still exists.
	isConfirmed bool
}

type registrationState struct {
	// reportedConflict is the last conflicting Node for which an event was recorded.
	reportedConflict types.UID
	// refusedNode is a Node that does not belong to the Machine's instance according to the provider. The refusal is the
	// text that explains this.
	refusedNode types.UID
	refusal     string
	// otherID is the UID of a Node that belongs to the Machine although the Node has another provider ID.
	otherID types.UID
	// reapplied counts the values that were set again on the Node because another client had changed them.
	reapplied *reapplications
	// taintedNode is the Node that got the taint of an old revision. The field is "" if there is none.
	taintedNode types.UID
	// appliedTemplate is the node template that was applied to the Node. It is nil when the status contains it. The
	// value is immutable.
	appliedTemplate *v1beta1.AppliedNodeTemplate
}

// teardownState is about the deletion of a Machine, or of an instance that is replaced.
type teardownState struct {
	// finalizerRemoved is true if this process has removed its finalizer. The cache may still show the Machine for a
	// moment, and the predicate for own writes filters the event of the removal.
	finalizerRemoved bool
	// nothingFoundSince is the time of the first Delete that found no instance. The cloud may show the instance later.
	nothingFoundSince time.Time
	// deletionAccepted is true if the cloud has accepted the deletion of the instance, or if it is confirmed that the
	// instance is gone.
	deletionAccepted bool
	// targetUnreachableSince is the time of the first failure in the current series of failed calls to the target
	// cluster. targetUnreachableSince is used only until the instance is gone.
	targetUnreachableSince time.Time
	// cleanupFailsSince is the start of the failures of calls that are made after the instance is gone.
	cleanupFailsSince time.Time
	// forcedSince is the time at which a force-deletion first had to wait for the deletion of the instance. The field
	// failingSince is the time at which that deletion began to fail, or zero if it does not fail.
	forcedSince, failingSince time.Time
	// foundInstance is an instance that the deletion has found but could not record in the status. The value is
	// immutable.
	foundInstance *provider.Instance
	drainReport   drainReport
}

func newStateStore() *stateStore {
	return &stateStore{adoptingMachines: map[string]types.UID{}, creationEndTimes: map[types.UID]time.Time{}}
}

// leadingSince returns the time of the first pass of this process, when it became the leader. A process may wait for
// days until it becomes the leader.
func (m *stateStore) leadingSince(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = now
	}
	return m.began
}

func (m *stateStore) get(machine *v1beta1.Machine) machineState { return m.machines.Get(machine) }

func (m *stateStore) update(machine *v1beta1.Machine, change func(*machineState)) {
	m.machines.Update(machine, change)
}

// retryNow lets the machine repeat a failed call now, without waiting for the end of its delay.
func (m *stateStore) retryNow(machine types.NamespacedName, now time.Time) {
	m.machines.UpdateKnown(machine, func(s *machineState) {
		if s.pace.notBefore.After(now) {
			s.pace.notBefore, s.pace.isEarly = now, true
		}
	})
}

func (m *stateStore) noteCreated(machine *v1beta1.Machine, at time.Time, settle time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.creationEndTimes[machine.UID] = at
	// Do not remove old entries each time, because many machines may be created at once.
	if len(m.creationEndTimes) >= m.sweepAt {
		maps.DeleteFunc(m.creationEndTimes, func(_ types.UID, t time.Time) bool { return at.Sub(t) > settle })
		m.sweepAt = 2*len(m.creationEndTimes) + 16
	}
}

func (m *stateStore) createdAt(machine *v1beta1.Machine) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.creationEndTimes[machine.UID]
}

// beginAdoption reports whether the Machine may adopt its instance now. Until endAdoption is called, no other Machine
// may adopt this instance.
func (m *stateStore) beginAdoption(machine *v1beta1.Machine) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, busy := m.adoptingMachines[machine.Spec.ProviderID]; busy {
		return false
	}
	m.adoptingMachines[machine.Spec.ProviderID] = machine.UID
	return true
}

func (m *stateStore) endAdoption(machine *v1beta1.Machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.adoptingMachines, machine.Spec.ProviderID)
}

// polledInterruption is the provider's answer about the interruption of one instance. The zero value means that there
// is no answer.
type polledInterruption struct {
	providerID string
	// reason is the value for the field reason of the condition InterruptionNotice. The value is "" if no interruption
	// was announced.
	reason string
	// reclaimTime is the time at which the cloud will reclaim the instance. It is zero if the cloud names no time.
	reclaimTime time.Time
}
