package machine

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/pkg/provider"
)

// memory is all that a Reconciler remembers between passes. Losing it at a restart costs calls and settling time, never
// correctness.
type memory struct {
	// preserving is held from the count of preserved machines to the patch that adds to them.
	preserving sync.Mutex

	mu       sync.Mutex
	machines map[types.NamespacedName]recollection
	began    time.Time
	// adopting is who is taking over which instance at this moment, by provider ID. Nobody is between passes.
	adopting map[string]types.UID
	// created is when the call of this process ended that created or adopted the recorded instance, by the Machine's UID, as
	// long as the cloud may not show that instance.
	created map[types.UID]time.Time
	// sweepAt is how many of those there are when the old ones are dropped.
	sweepAt int
}

// recollection is what is remembered of one Machine.
type recollection struct {
	uid types.UID
	// tried is the fingerprint of what the last failed Create was made from, and notBefore when that may be tried again
	// (zero: not until something changed).
	tried     string
	notBefore time.Time
	// ambiguousAt is when this process last sent a Create whose outcome it does not know.
	ambiguousAt time.Time
	// missingSince is when the cloud first answered NotFound for the recorded instance, with nothing after that which
	// contradicts it.
	missingSince time.Time
	// incomplete is true when the cloud did not show the instance yet when its Node was Ready.
	incomplete bool
	// ours says that nobody but this process can have made a bootstrap token for the Machine, and token that this process
	// may have. Both are forgotten when the token is dropped.
	ours, token bool
	// extendTokenAt is when the bootstrap token is to be extended, or looked at for it; zero where it was not looked at yet.
	extendTokenAt time.Time
	// queuedSince is when this process first found no place for the creation of its instance.
	queuedSince time.Time
	// booted is what the provider said of its instance since the status was written.
	booted *booted
	// lookupFailures counts the driver's errors in a row while following an instance.
	lookupFailures int32
	// doubted is the provider ID of an instance of which somebody doubts that it is there.
	doubted string
	// polled is what the provider said when it was last asked which instances are about to be taken away.
	polled polled
	// asked is true once the provider has told that the instance of a Node in trouble is still there.
	asked bool
	// released is true once our finalizer is off: the cache shows the Machine for a moment longer, and its own writes do
	// not tell it that the object went with the last of them.
	released bool
	// deletingSince is when this process was first told that there is nothing to delete, and did not believe it.
	deletingSince time.Time
	// deleteAccepted is true once the cloud has accepted the removal of the instance, or it was confirmed to be gone.
	deleteAccepted bool
	// targetAwaySince is when the target cluster first failed this process while deleting, before the instance was gone.
	targetAwaySince time.Time
	// cleanupFailsSince is when the target cluster first failed this process after the instance was gone.
	cleanupFailsSince time.Time
	// found is an instance that a deletion has found and could not write down yet; it is never changed.
	found *provider.Instance
	// rival is the Node of which was last said that it has the Machine's provider ID and is not its.
	rival types.UID
	// applied is what is on the Node, until the Machine's status says so; it is never changed.
	applied *v1beta1.AppliedNodeTemplate
	// told is what was written last of a drain.
	told told
	// deleteFailures counts the driver's errors in a row while deleting.
	deleteFailures int32
}

func newMemory() *memory {
	return &memory{machines: map[types.NamespacedName]recollection{}, adopting: map[string]types.UID{}, created: map[types.UID]time.Time{}}
}

// since returns when this process made its first pass, which is this one the first time. That is when it began to lead,
// not when it was started: a process may wait for its election for days while another one works.
func (m *memory) since(now time.Time) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.began.IsZero() {
		m.began = now
	}
	return m.began
}

func (m *memory) of(machine *v1beta1.Machine) recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.machines[client.ObjectKeyFromObject(machine)]; r.uid == machine.UID {
		return r
	}
	return recollection{}
}

func (m *memory) update(machine *v1beta1.Machine, change func(*recollection)) {
	key, uid := client.ObjectKeyFromObject(machine), machine.UID
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.machines[key]
	if r.uid != uid {
		r = recollection{}
	}
	change(&r)
	if r.uid = uid; r == (recollection{uid: uid}) {
		delete(m.machines, key)
		return
	}
	m.machines[key] = r
}

func (m *memory) forget(machine types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.machines, machine)
}

// noteCreated keeps when the instance of a Machine was created or adopted, and drops what no longer matters.
func (m *memory) noteCreated(machine *v1beta1.Machine, at time.Time, settle time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.created[machine.UID] = at
	if len(m.created) >= m.sweepAt { // Not at each creation: many machines come at once.
		maps.DeleteFunc(m.created, func(_ types.UID, t time.Time) bool { return at.Sub(t) > settle })
		m.sweepAt = 2*len(m.created) + 16
	}
}

// createdAt returns that time, zero if this process does not know it.
func (m *memory) createdAt(machine *v1beta1.Machine) time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.created[machine.UID]
}

// beginAdoption reports whether no other Machine is taking over the instance at this moment. If so, none can until
// endAdoption.
func (m *memory) beginAdoption(machine *v1beta1.Machine) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, busy := m.adopting[machine.Spec.ProviderID]; busy {
		return false
	}
	m.adopting[machine.Spec.ProviderID] = machine.UID
	return true
}

func (m *memory) endAdoption(machine *v1beta1.Machine) {
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
	// at is when the instance is taken away, zero if the cloud does not tell.
	at time.Time
}
