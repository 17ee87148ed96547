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

// sharedState is the memory of a Reconciler between passes. If the memory is lost, the Reconciler needs more reads
// and more time, but stays correct.
type sharedState struct {
	mu          sync.Mutex
	deployments map[types.NamespacedName]*deploymentState
}

// deploymentState is the state of one deployment. Only the worker that reconciles the deployment uses this state,
// except for the fields that event handlers write.
type deploymentState struct {
	uid types.UID
	// cache tracks whether the cache may be trusted. A pass confirms the cache by comparing it with live lists.
	cache freshness.Tracker
	// orphanSet is true if a set without an owner may belong to the deployment. failed contains the machines that
	// failed to launch since the last pass. Event handlers write both fields, which sharedState.mu guards.
	orphanSet bool
	failed    []launchFailure
	// recent contains the last failures, the newest first. broken contains the failures of all existing machines, by name.
	// Event handlers use both fields, which sharedState.mu guards.
	recent []v1beta1.FailedMachine
	broken map[string]v1beta1.FailedMachine
	// machineEvents counts the events since the last pass about machines that are Ready or gone. sharedState.mu guards
	// this field.
	machineEvents int32

	// observedGeneration is the current generation of the deployment. specVersion is a resource version of the deployment
	// with this generation.
	observedGeneration int64
	specVersion        string
	// generation and decidedAt are the generation and the time of the last decision. machines is the number of
	// machines that this decision was based on.
	generation int64
	decidedAt  time.Time
	machines   int
	// batch is the number of machineEvents that a rollout waits for before its next step, or 0 without a rollout.
	batch int32
	// reportedAt is the time at which the status was last written.
	reportedAt time.Time
	// stuck is the reason in the metric of stuck rollouts, or empty if the rollout is not stuck.
	stuck string

	// unobserved contains earlier replicas of sets that a set's controller may still use, by the UID of the set.
	unobserved map[types.UID]unobservedReplicas
	// failures contains the last launch failures of the set that is being rolled out.
	failures failures
}

// unobservedReplicas is the range of the replicas that a set had before the given generation.
type unobservedReplicas struct {
	least, most int32
	generation  int64
}

func newSharedState() *sharedState {
	return &sharedState{deployments: map[types.NamespacedName]*deploymentState{}}
}

// get returns the state of the deployment. If the deployment has another UID than before, the state is new.
func (m *sharedState) get(key types.NamespacedName, uid types.UID) *deploymentState {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.deployments[key]
	if r == nil || r.uid != uid {
		r = &deploymentState{uid: uid, orphanSet: true, unobserved: map[types.UID]unobservedReplicas{},
			broken: map[string]v1beta1.FailedMachine{}}
		m.deployments[key] = r
	}
	return r
}

// observed records the generation and resource version of the deployment.
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

// orphanSetSeen records that a set without an owner may belong to the deployment.
func (m *sharedState) orphanSetSeen(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.orphanSet = true
	}
}

// takeOrphanSetSeen reports whether a set without an owner may exist, and resets this record.
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

// launchFailed records a machine that failed to launch. The machine may no longer exist in the next pass.
func (m *sharedState) launchFailed(key types.NamespacedName, failure launchFailure) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.failed = slices.DeleteFunc(r.failed, func(f launchFailure) bool { return f.machine.Name == failure.machine.Name })
		r.failed = append(r.failed, failure)
	}
}

// takeFailed returns the machines that failed to launch since the previous call.
func (m *sharedState) takeFailed(r *deploymentState) []launchFailure {
	m.mu.Lock()
	defer m.mu.Unlock()
	failed := r.failed
	r.failed = nil
	return failed
}

// spacing limits the CPU time that is spent on counting machines, even if many machines trigger events at once.
var spacing = queueing.Spacing{PerObject: 400 * time.Microsecond, Max: 4 * time.Second}

// stepDebounce is the time for which a rollout collects events of machines before its next step. If several machines
// may be replaced at a time, one step can then replace several of them, with only one write for each set.
const stepDebounce = time.Second

// debounce returns how long the next pass must be delayed to collect more events. If the deployment itself has
// changed, the pass is not delayed.
func (r *deploymentState) debounce(generation int64, machineEvents int32, now time.Time) time.Duration {
	if generation != r.generation {
		return 0
	}
	interval := spacing.For(r.machines)
	if machineEvents < r.batch {
		interval = max(interval, stepDebounce)
	}
	return max(0, interval-now.Sub(r.decidedAt))
}

// recordMachineEvent records that a machine of the deployment is Ready or gone.
func (m *sharedState) recordMachineEvent(key types.NamespacedName) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.deployments[key]; r != nil {
		r.machineEvents++
	}
}

// machineEventsOf returns the number of events since the last reset. If take is true, it resets this number.
func (m *sharedState) machineEventsOf(r *deploymentState, take bool) int32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := r.machineEvents
	if take {
		r.machineEvents = 0
	}
	return n
}

// includeUnobserved extends the range from Least to Most by earlier replicas of the set, until the set's controller has
// observed a later generation.
func (r *deploymentState) includeUnobserved(set *v1beta1.MachineSet, counted *Set) {
	before, ok := r.unobserved[set.UID]
	switch {
	case !ok:
	case set.Status.ObservedGeneration >= before.generation:
		delete(r.unobserved, set.UID)
	default:
		counted.Least, counted.Most = min(counted.Least, before.least), max(counted.Most, before.most)
	}
}

// recordWrite records that the write with the given generation changed the replicas of a set from the value before to
// the value now. The parameter live is the number of live machines of the set. If the set had already reached the
// earlier replicas, its controller no longer acts on them, so they are not recorded.
func (r *deploymentState) recordWrite(set types.UID, live, before, now int32, generation int64) {
	if now < before && live >= before || now > before && live <= before {
		return
	}
	t, ok := r.unobserved[set]
	if !ok {
		t = unobservedReplicas{least: before, most: before}
	}
	r.unobserved[set] = unobservedReplicas{least: min(t.least, before), most: max(t.most, before),
		generation: max(generation, t.generation)}
}

// keepOnly drops the state of all sets that are not in the given list.
func (r *deploymentState) keepOnly(sets []types.UID) {
	for uid := range r.unobserved {
		if !slices.Contains(sets, uid) {
			delete(r.unobserved, uid)
		}
	}
}
