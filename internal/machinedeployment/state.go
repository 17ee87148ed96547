package machinedeployment

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// memory is all that a Reconciler remembers between passes. Losing it costs reads and time, never correctness: what
// must survive is in the API.
type sharedState struct {
	mu          sync.Mutex
	deployments map[types.NamespacedName]*deploymentState
}

// recollection is what is remembered of one deployment. Only the worker that has its key in hand uses it, except for
// what events write.
type deploymentState struct {
	uid types.UID
	// trusted says that the cache may be relied upon: it was once as new as live lists, and no write since then
	// has failed in a way that leaves its outcome open.
	trusted bool
	// strays says that a set without an owner may be the deployment's, and failed are machines seen failing to launch
	// since the last pass. Events write both, guarded by memory.mu.
	orphanSet bool
	failed    []launchFailure
	// news are machines that became Ready or went since the last pass. Events count them, guarded by memory.mu.
	machineEvents int32

	// observedGeneration is the present generation, and specVersion a resource version at which the deployment had it.
	observedGeneration int64
	specVersion        string
	// generation and decidedAt are of the last decision, and machines how many it counted.
	generation int64
	decidedAt  time.Time
	machines   int
	// batch is how much news a rollout may gather before its next step, 0 if none is under way.
	batch int32
	// reportedAt is when the status was last written.
	reportedAt time.Time
	// stuck is the reason that the metric has for the rollout, empty if it is not stuck.
	stuck string

	// told are numbers of replicas that sets may still act upon, by UID.
	unobserved map[types.UID]unobservedReplicas
	// failures are the last launch failures of the set that is being rolled out.
	failures failures
}

// told is what a set was told before the given generation.
type unobservedReplicas struct {
	least, most int32
	generation  int64
}

func newSharedState() *sharedState {
	return &sharedState{deployments: map[types.NamespacedName]*deploymentState{}}
}

// of returns what is remembered of the deployment. Another UID under the same name starts afresh.
func (m *sharedState) get(key types.NamespacedName, uid types.UID) *deploymentState {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.deployments[key]
	if r == nil || r.uid != uid {
		r = &deploymentState{uid: uid, orphanSet: true, unobserved: map[types.UID]unobservedReplicas{}}
		m.deployments[key] = r
	}
	return r
}

// observed takes note of a version of the deployment.
func (r *deploymentState) observed(d *v1beta1.MachineDeployment) {
	if r.observedGeneration != d.Generation {
		r.observedGeneration, r.specVersion = d.Generation, d.ResourceVersion
	}
}

func (m *sharedState) forget(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.deployments, key)
}

// straySeen notes that a set without an owner may belong to the deployment.
func (m *sharedState) orphanSetSeen(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.orphanSet = true
	}
}

// takeStrays reports whether to look for sets without an owner, and takes the note away.
func (m *sharedState) takeOrphanSetSeen(r *deploymentState) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	seen := r.orphanSet
	r.orphanSet = false
	return seen
}

func (m *sharedState) keepOrphanSetSeen(r *deploymentState) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r.orphanSet = true
}

// launchFailed notes a machine that failed to launch. It may be replaced before the next pass looks at it.
func (m *sharedState) launchFailed(key types.NamespacedName, failure launchFailure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.failed = slices.DeleteFunc(r.failed, func(f launchFailure) bool { return f.machine.Name == failure.machine.Name })
		r.failed = append(r.failed, failure)
	}
}

// takeFailed returns the machines seen failing since the last call.
func (m *sharedState) takeFailed(r *deploymentState) []launchFailure {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := r.failed
	r.failed = nil
	return failed
}

// costPerMachine spaces passes out in proportion to what they cost, so that counting takes a bounded share of a
// processor however many machines report at once.
const (
	debouncePerMachine = 400 * time.Microsecond
	maxDebounce        = 2 * time.Second
)

// longestStep is how long at least a rollout gathers news for one step, so that a step exchanges several machines where
// several may be exchanged, and a set is written once for them.
const stepDebounce = time.Second

// settle returns how long to gather further events before the next pass. A change of the deployment itself is never
// kept waiting.
func (r *deploymentState) debounce(generation int64, machineEvents int32, now time.Time) time.Duration {
	if generation != r.generation {
		return 0
	}
	interval := min(time.Duration(r.machines)*debouncePerMachine, maxDebounce)
	if machineEvents < r.batch {
		interval = max(interval, stepDebounce)
	}
	return max(0, interval-now.Sub(r.decidedAt))
}

// machineNews notes that a machine of the deployment became Ready, or went.
func (m *sharedState) recordMachineEvent(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.machineEvents++
	}
}

// newsOf returns how much news there is since it was last taken, and takes it if told so.
func (m *sharedState) machineEventsOf(r *deploymentState, take bool) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := r.machineEvents
	if take {
		r.machineEvents = 0
	}
	return n
}

// recall widens what the set may act upon by what it was told before, until its controller reports a later generation.
func (r *deploymentState) widen(set *v1beta1.MachineSet, counted *Set) {
	before, ok := r.unobserved[set.UID]
	switch {
	case !ok:
	case set.Status.ObservedGeneration >= before.generation:
		delete(r.unobserved, set.UID)
	default:
		counted.Least, counted.Most = min(counted.Least, before.least), max(counted.Most, before.most)
	}
}

// tell notes that the set, which has live machines, was told another number of replicas than before with the given
// generation. What it had reached already it cannot act upon any more.
func (r *deploymentState) recordWrite(set types.UID, live, before, now int32, generation int64) {
	if now < before && live >= before || now > before && live <= before {
		return
	}
	t, ok := r.unobserved[set]
	if !ok {
		t = unobservedReplicas{least: before, most: before}
	}
	r.unobserved[set] = unobservedReplicas{least: min(t.least, before), most: max(t.most, before), generation: max(generation, t.generation)}
}

// keepOnly drops what is remembered of sets that are gone.
func (r *deploymentState) keepOnly(sets []types.UID) {
	for uid := range r.unobserved {
		if !slices.Contains(sets, uid) {
			delete(r.unobserved, uid)
		}
	}
}

// Fork returns a Reconciler that works with other options and remembers what r remembers at this moment. From then on
// neither knows what the other does. It is for simulations, and must not be called during a pass.
func (r *Reconciler) Clone(o Options) *Reconciler {
	f := New(o)
	m := r.shared
	r.echo.CopyTo(f.echo)
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, known := range m.deployments {
		copied := *known
		copied.failed = slices.Clone(known.failed)
		copied.unobserved = maps.Clone(known.unobserved)
		copied.failures.machines = maps.Clone(known.failures.machines)
		f.shared.deployments[key] = &copied
	}
	return f
}
