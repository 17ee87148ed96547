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

// stateStore is all that a Reconciler keeps between passes. Losing it at a restart costs calls and settling time, never
// correctness.
type stateStore struct {
	// preserving is locked, for an owner, from the count of its preserved machines to the patch that adds to them.
	preserving keylock.Locks

	mu       sync.Mutex
	machines map[types.NamespacedName]storedState
	began    time.Time
	// adopting has the Machine that is adopting an instance at this moment, by provider ID. It is empty between passes.
	adopting map[string]types.UID
	// created is when this process's call ended that created or adopted the recorded instance, by the Machine's UID, for
	// as long as the cloud may not show that instance.
	created map[types.UID]time.Time
	// sweepAt is the length of created at which old entries are dropped.
	sweepAt int
}

// machineState is what the process keeps of one Machine, by the step that uses it.
type machineState struct {
	uid          types.UID
	pace         pace
	launch       launchState
	instance     instanceState
	registration registrationState
	teardown     teardownState
	update       updateState
	// recorded is what this process has written of the instance; nil if nothing.
	recorded *recorded
}

// launchState belongs to the creation of an instance, and to its bootstrap token.
type launchState struct {
	// ambiguousAt is when this process last sent a Create and got no answer.
	ambiguousAt time.Time
	// ownToken is true if only this process can have made a bootstrap token for the Machine, and token if this process may
	// have made one. Both are reset when the token is deleted.
	ownToken, token bool
	// extendTokenAt is when the bootstrap token has to be extended or checked; zero: it was not checked yet.
	extendTokenAt time.Time
	// queuedSince is when this process first found no free slot for the creation.
	queuedSince time.Time
}

// updateState belongs to a change in place.
type updateState struct {
	// begun is true if only this process can have asked for the changes since the instance was last known to be up to
	// date.
	begun bool
	// ambiguousAt is when this process last asked for one and got no answer, and ambiguous the fingerprint of what it
	// asked for, "" if that was different things.
	ambiguousAt time.Time
	ambiguous   string
}

// instanceState belongs to an instance that exists, or is expected to.
type instanceState struct {
	// missingSince is when the cloud first answered NotFound for the recorded instance; zero when something contradicted
	// that since.
	missingSince time.Time
	// deniedAt is when the cloud last denied others as well, which run; zero when it did not since it was reported.
	deniedAt time.Time
	// untaggedSince is when a lookup by tags first found nothing of an instance whose scope this process does not know;
	// zero when one found it since.
	untaggedSince time.Time
	// foundIn is the scope in which this process has last found the instance, or has made sure that it is nowhere else.
	foundIn string
	// incomplete is true if the cloud did not show the instance yet when its Node became Ready.
	incomplete bool
	// booted is the running instance as the provider described it, until the status is written.
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

// registrationState belongs to the Machine's Node.
type registrationState struct {
	// reportedConflict is the last Node that an event reported because it has the Machine's provider ID and is not its
	// Node.
	reportedConflict types.UID
	// otherID is the Node that was proven to be the Machine's, and has another provider ID.
	otherID types.UID
	// reapplied counts what was set again on the Node because another writer had changed it; nil if nothing.
	reapplied *reapplications
	// applied is the node template on the Node, until the status has it. It is never changed.
	applied *v1beta1.AppliedNodeTemplate
}

// teardownState belongs to the removal of a Machine or of an instance that is replaced.
type teardownState struct {
	// released is true once our finalizer is removed. The cache shows the Machine for a moment longer, and the predicate
	// for own writes hides that the last one removed it.
	released bool
	// nothingFoundSince is when Delete first reported that there is no instance, before that was confirmed.
	nothingFoundSince time.Time
	// accepted is true once the cloud has accepted the removal of the instance, or it is confirmed to be gone.
	accepted bool
	// targetUnreachableSince is when a call to the target cluster first failed since it last answered, before the instance
	// was gone.
	targetUnreachableSince time.Time
	// cleanupFailsSince is when a call to the target cluster first failed after the instance was gone.
	cleanupFailsSince time.Time
	// forcedSince is when the removal of the instance first held up a deletion by force, and failingSince since when the
	// removal fails in it; zero if it does not.
	forcedSince, failingSince time.Time
	// found is an instance that was made or found and could not be recorded yet, for a deletion. It is never changed.
	found *provider.Instance
	// drainReport is the last written report of a drain.
	drainReport drainReport
}

// storedState is a machineState as it is stored: in a tenth of its size for a Machine that runs, of which there may be
// thousands.
type storedState struct {
	uid types.UID
	// created is when the Machine was, in seconds.
	created  int64
	foundIn  string
	recorded *recorded
	// whole has all if there is more than that. It is never changed.
	whole *machineState
}

func stored(s machineState) storedState {
	few := storedState{uid: s.uid, foundIn: s.instance.foundIn, recorded: s.recorded}
	if whole := s; whole != few.state() {
		return storedState{uid: s.uid, whole: &whole}
	}
	return few
}

func (s storedState) state() machineState {
	if s.whole != nil {
		return *s.whole
	}
	return machineState{uid: s.uid, instance: instanceState{foundIn: s.foundIn}, recorded: s.recorded}
}

func newStateStore() *stateStore {
	return &stateStore{machines: map[types.NamespacedName]storedState{},
		adopting: map[string]types.UID{},
		created:  map[types.UID]time.Time{}}
}

// since returns when this process made its first pass, which is this one the first time. That is when it began to lead,
// not when it was started: a process may wait for its election for days while another one works.
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

// update changes what is kept of a Machine. An observer may know a Machine that is gone: its name may be that of
// another one by now, whose state stays.
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
	few := stored(r)
	few.created = created
	m.machines[key] = few
}

// hurry lets the next try of a failed call be made now.
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
		few := stored(s)
		few.created = known.created
		m.machines[machine] = few
	}
}

func (m *stateStore) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// noteCreated keeps when the instance of a Machine was created or adopted, and drops what no longer matters.
func (m *stateStore) noteCreated(machine *v1beta1.Machine, at time.Time, settle time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created[machine.UID] = at
	if len(m.created) >= m.sweepAt { // Not at each creation: many machines come at once.
		maps.DeleteFunc(m.created, func(_ types.UID, t time.Time) bool { return at.Sub(t) > settle })
		m.sweepAt = 2*len(m.created) + 16
	}
}

// createdAt returns that time, zero if this process does not know it.
func (m *stateStore) createdAt(machine *v1beta1.Machine) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.created[machine.UID]
}

// beginAdoption reports whether no other Machine is taking over the instance at this moment. If so, none can until
// endAdoption.
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

// polled is the answer of the provider about one instance. The zero value is no answer.
type polled struct {
	// providerID of the instance that it is about.
	providerID string
	// reason of the condition InterruptionNotice, empty if nothing was announced.
	reason string
	// at is when the cloud reclaims the instance, zero if it gives no time.
	at time.Time
}
