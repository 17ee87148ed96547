package machine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/keylock"
	"machinist.dev/machinist/pkg/provider"
)

// stateStore is everything that a Reconciler remembers between passes. Losing it at a restart causes additional calls
// and waits for the settle time, but never wrong decisions.
type stateStore struct {
	// preserving is locked per owner from the count of its preserved machines until the patch that preserves another
	// one.
	preserving keylock.Locks

	mu       sync.Mutex
	machines map[types.NamespacedName]storedState
	began    time.Time
	// adopting has the Machine that is adopting an instance at this moment, by provider ID. It is empty between passes.
	adopting map[string]types.UID
	// created is when this process's Create or Adopt of the recorded instance ended, by the Machine's UID. An entry is
	// kept as long as the cloud may not show the instance.
	created map[types.UID]time.Time
	// sweepAt is the length of created at which old entries are dropped.
	sweepAt int
}

// machineState is what the process remembers of one Machine, by the step that uses it.
type machineState struct {
	uid          types.UID
	pace         pace
	launch       launchState
	instance     instanceState
	registration registrationState
	teardown     teardownState
	update       updateState
}

// launchState is about the creation of an instance and its bootstrap token.
type launchState struct {
	// ambiguousAt is when this process last sent a Create whose effect is not known, or zero if there is none.
	ambiguousAt time.Time
	// ownToken is true if no other process can have created a bootstrap token for the Machine. token is true if this
	// process may have created one. Both are reset when the token is deleted.
	ownToken, token bool
	// extendTokenAt is when the bootstrap token has to be extended or checked. Zero means that it was not checked yet.
	extendTokenAt time.Time
	// queuedSince is when this process first found no free slot for the creation.
	queuedSince time.Time
}

// updateState is about an update in place.
type updateState struct {
	// begun is true if no other process can have requested updates since the instance was last known to be up to date.
	begun bool
	// ambiguousAt is when this process last requested an update and got no answer. ambiguous is the fingerprint of that
	// request, or "" if there were different requests.
	ambiguousAt time.Time
	ambiguous   string
}

// instanceState is about an instance that exists or is expected to.
type instanceState struct {
	// missingSince is when the cloud first answered NotFound for the recorded instance, or zero if something has
	// contradicted that since.
	missingSince time.Time
	// deniedAt is when the cloud last also answered NotFound for witnesses, or did not answer for them. It is zero if
	// something has contradicted the NotFound since.
	deniedAt time.Time
	// incomplete is true if the cloud did not show the instance yet when its Node became Ready.
	incomplete bool
	// booted is the running instance as the provider returned it, until the status is written.
	booted *booted
	// getFailures counts consecutive errors of the driver's Get.
	getFailures int32
	// suspectID is the provider ID of an instance that an observer reported as missing.
	suspectID string
	// polled is the provider's last answer about interruptions.
	polled polled
	// checked is true once the provider has confirmed that the instance of an unhealthy Node still exists.
	checked bool
}

// registrationState is about the Machine's Node.
type registrationState struct {
	// reportedConflict is the last Node that an event reported because it has the Machine's provider ID but is not its
	// Node.
	reportedConflict types.UID
	// otherID is the Node that is proven to be the Machine's, but has another provider ID.
	otherID types.UID
	// reapplied counts what was set again on the Node because another writer had changed it. It is nil if nothing was set
	// again.
	reapplied *reapplications
	// tainted is the Node that was given the taint of an old revision, "" if none.
	tainted types.UID
	// applied is the node template on the Node, until the status has it. It is immutable.
	applied *v1beta1.AppliedNodeTemplate
}

// teardownState is about the deletion of a Machine, or of an instance that is replaced.
type teardownState struct {
	// released is true once our finalizer is removed. The cache shows the Machine for a moment longer, and the
	// predicate for own writes hides the event of the removal.
	released bool
	// nothingFoundSince is when Delete first reported that there is no instance, before that was confirmed.
	nothingFoundSince time.Time
	// accepted is true once the cloud has accepted the deletion of the instance, or the instance is confirmed to be
	// gone.
	accepted bool
	// targetUnreachableSince is when the current series of failing calls to the target cluster began, before the
	// instance was gone.
	targetUnreachableSince time.Time
	// cleanupFailsSince is when a call to the target cluster first failed after the instance was gone.
	cleanupFailsSince time.Time
	// forcedSince is when a force-deletion first had to wait for the deletion of the instance. failingSince is the time at
	// which that deletion began to fail, or zero if it does not fail.
	forcedSince, failingSince time.Time
	// found is an instance that was created or found but could not be recorded yet, for a deletion. It is immutable.
	found *provider.Instance
	// drainReport is the last written report of a drain.
	drainReport drainReport
}

// storedState is a machineState in its stored form. For a running Machine, of which there may be thousands, it takes a
// tenth of the memory.
type storedState struct {
	uid types.UID
	// created is the creation time of the Machine in seconds.
	created int64
	// full is the full state if the other fields cannot hold it. It is immutable.
	full *machineState
}

func stored(s machineState) storedState {
	compact := storedState{uid: s.uid}
	if full := s; full != compact.state() {
		return storedState{uid: s.uid, full: &full}
	}
	return compact
}

func (s storedState) state() machineState {
	if s.full != nil {
		return *s.full
	}
	return machineState{uid: s.uid}
}

func newStateStore() *stateStore {
	return &stateStore{machines: map[types.NamespacedName]storedState{},
		adopting: map[string]types.UID{},
		created:  map[types.UID]time.Time{}}
}

// since returns when this process made its first pass, which is when it began to lead. This is not when it was started:
// a process may wait for days until it is elected.
func (m *stateStore) since(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = now
	}
	return m.began
}

func (m *stateStore) get(machine *v1beta1.Machine) machineState {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.machines[client.ObjectKeyFromObject(machine)]; r.uid == machine.UID {
		return r.state()
	}
	return machineState{}
}

// update changes what is remembered of a Machine. An observer may pass a Machine that is gone. If a newer Machine has
// its name, the state of the newer one stays unchanged.
func (m *stateStore) update(machine *v1beta1.Machine, change func(*machineState)) {
	key, uid, created := client.ObjectKeyFromObject(machine), machine.UID, machine.CreationTimestamp.Unix()
	m.mu.Lock()
	defer m.mu.Unlock()
	r := machineState{}
	switch known := m.machines[key]; {
	case known.uid == uid:
		r = known.state()
	case known.uid != "" && known.created > created:
		return
	}
	change(&r)
	if r.uid = uid; r == (machineState{uid: uid}) {
		delete(m.machines, key)
		return
	}
	compact := stored(r)
	compact.created = created
	m.machines[key] = compact
}

// hurry lets the next try of a failed call happen now.
func (m *stateStore) hurry(machine types.NamespacedName, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	known, ok := m.machines[machine]
	if !ok {
		return
	}
	s := known.state()
	if s.pace.notBefore.After(now) {
		s.pace.notBefore, s.pace.early = now, true
		compact := stored(s)
		compact.created = known.created
		m.machines[machine] = compact
	}
}

func (m *stateStore) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// noteCreated records when the instance of a Machine was created or adopted, and drops outdated records.
func (m *stateStore) noteCreated(machine *v1beta1.Machine, at time.Time, settle time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created[machine.UID] = at
	if len(m.created) >= m.sweepAt { // Not at each creation, because many machines may be created at once.
		maps.DeleteFunc(m.created, func(_ types.UID, t time.Time) bool { return at.Sub(t) > settle })
		m.sweepAt = 2*len(m.created) + 16
	}
}

// createdAt returns the time of noteCreated, or zero if this process does not know it.
func (m *stateStore) createdAt(machine *v1beta1.Machine) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.created[machine.UID]
}

// beginAdoption reports whether no other Machine is adopting the instance at this moment. If it returns true, no other
// Machine can until endAdoption.
func (m *stateStore) beginAdoption(machine *v1beta1.Machine) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, busy := m.adopting[machine.Spec.ProviderID]; busy {
		return false
	}
	m.adopting[machine.Spec.ProviderID] = machine.UID
	return true
}

func (m *stateStore) endAdoption(machine *v1beta1.Machine) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.adopting, machine.Spec.ProviderID)
}

// polled is the provider's answer about one instance. The zero value means that there is none.
type polled struct {
	// providerID is the provider ID of the instance.
	providerID string
	// reason is the reason for the condition InterruptionNotice, or "" if nothing was announced.
	reason string
	// at is when the cloud reclaims the instance, or zero if the cloud gives no time.
	at time.Time
}
