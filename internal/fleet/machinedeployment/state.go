package machinedeployment

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/queueing"
)

// sharedState is a Reconciler's memory between passes. After a restart, the process needs more reads and time, but its
// decisions stay correct.
type sharedState struct {
	mu          sync.Mutex
	deployments map[types.NamespacedName]*deploymentState
}

// deploymentState is what the process remembers about one deployment. Event handlers write the fields that
// sharedState.mu guards. All other fields are used only by the worker that reconciles the deployment.
type deploymentState struct {
	uid types.UID
	// cache tracks whether a comparison with live lists has confirmed the cache.
	cache freshness.Tracker
	// orphanSet means that a set without an owner may belong to the deployment. failed is the list of machines that
	// failed to launch since the last pass. sharedState.mu guards these two fields.
	orphanSet bool
	failed    []launchFailure
	// recentFailures holds the last failures, newest first. failuresByName holds the failures of existing machines by
	// name. sharedState.mu guards both.
	recentFailures []v1beta1.FailedMachine
	failuresByName map[string]v1beta1.FailedMachine
	// machineEvents counts events about Ready or deleted machines since the last pass. sharedState.mu guards it.
	machineEvents int32

	// observedGeneration is the last observed generation of the deployment. specVersion is a resource version of the
	// deployment with this generation.
	observedGeneration int64
	specVersion        string
	// generation is the deployment's generation, decidedAt the time, and machines the number of machines at the last
	// decision.
	generation int64
	decidedAt  time.Time
	machines   int
	// batch is how many machineEvents a rollout waits for before its next step, or 0 without a rollout.
	batch      int32
	reportedAt time.Time
	// stuckReason is the reason in the metric of stuck rollouts, or empty.
	stuckReason string

	// unobservedSets holds earlier replicas that a set's controller may still use, by the UID of the set.
	unobservedSets map[types.UID]unobservedReplicas
	failures       failures
}

// unobservedReplicas contains the lowest and the highest replicas of a set before the given generation. Until the set's
// controller observes the generation, it may create or delete machines for these earlier replicas.
type unobservedReplicas struct {
	least, most int32
	generation  int64
}

func newSharedState() *sharedState {
	return &sharedState{deployments: map[types.NamespacedName]*deploymentState{}}
}

func (m *sharedState) get(key types.NamespacedName, uid types.UID) *deploymentState {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.deployments[key]
	if r == nil || r.uid != uid {
		r = &deploymentState{uid: uid, orphanSet: true, unobservedSets: map[types.UID]unobservedReplicas{},
			failuresByName: map[string]v1beta1.FailedMachine{}}
		m.deployments[key] = r
	}
	return r
}

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

func (m *sharedState) orphanSetSeen(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.orphanSet = true
	}
}

// takeOrphanSetSeen reports whether an event handler has seen a set without an owner since the last call of
// takeOrphanSetSeen.
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

// launchFailed records a launch failure, because the machine may be gone in the next pass.
func (m *sharedState) launchFailed(key types.NamespacedName, failure launchFailure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.failed = slices.DeleteFunc(r.failed, func(f launchFailure) bool { return f.machine.Name == failure.machine.Name })
		r.failed = append(r.failed, failure)
	}
}

// takeFailed returns the launch failures since the previous call.
func (m *sharedState) takeFailed(r *deploymentState) []launchFailure {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := r.failed
	r.failed = nil
	return failed
}

// spacing limits the CPU time for counting machines when many machines trigger events at once.
var spacing = queueing.Spacing{PerObject: 400 * time.Microsecond, Max: 4 * time.Second}

// stepDebounce is how long a rollout collects events before its next step, so that one write for each set covers
// several machines.
const stepDebounce = time.Second

// debounce returns how long to delay the next pass to collect events. There is no delay if the deployment's spec
// changed.
func (r *deploymentState) debounce(generation int64, machineEvents int32, now time.Time) time.Duration {
	if generation != r.generation {
		return 0
	}
	interval := spacing.Delay(r.machines)
	if machineEvents < r.batch {
		interval = max(interval, stepDebounce)
	}
	return max(0, interval-now.Sub(r.decidedAt))
}

func (m *sharedState) recordMachineEvent(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.machineEvents++
	}
}

// machineEventsOf returns the counter of machine events. If take is true, the counter is set to zero.
func (m *sharedState) machineEventsOf(r *deploymentState, take bool) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := r.machineEvents
	if take {
		r.machineEvents = 0
	}
	return n
}

// includeUnobserved extends the range from counted.MinReplicas to counted.MaxReplicas by earlier replicas, because
// the set's controller may not have observed the latest replicas yet.
func (r *deploymentState) includeUnobserved(set *v1beta1.MachineSet, counted *Set) {
	before, ok := r.unobservedSets[set.UID]
	switch {
	case !ok:
	case set.Status.ObservedGeneration >= before.generation:
		delete(r.unobservedSets, set.UID)
	default:
		counted.MinReplicas, counted.MaxReplicas = min(counted.MinReplicas, before.least), max(counted.MaxReplicas, before.most)
	}
}

// recordWrite remembers the earlier replicas of a set after a write, because the set's controller has not observed the
// new generation yet. Nothing is recorded if the controller would create or delete no further machine for the earlier
// replicas.
func (r *deploymentState) recordWrite(set types.UID, live, before, now int32, generation int64) {
	if now < before && live >= before || now > before && live <= before {
		return
	}
	t, ok := r.unobservedSets[set]
	if !ok {
		t = unobservedReplicas{least: before, most: before}
	}
	r.unobservedSets[set] = unobservedReplicas{least: min(t.least, before), most: max(t.most, before),
		generation: max(generation, t.generation)}
}

func (r *deploymentState) keepOnly(sets []types.UID) {
	for uid := range r.unobservedSets {
		if !slices.Contains(sets, uid) {
			delete(r.unobservedSets, uid)
		}
	}
}
