package machineset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/keylock"
)

// sharedState is the memory of a Reconciler, which its workers share. If it is lost, the Reconciler needs more
// reads and time, but the number of machines stays exact.
type sharedState struct {
	// remediating contains a lock for each deployment, and for each set without a deployment. Several sets may
	// share a budget. Therefore the lock is held from the count of remediations in progress until the new deletions
	// are included in this count.
	remediating keylock.Locks
	// shrinking contains a lock for each deployment. If several sets of the deployment have available machines, the lock
	// is held from the count of available machines until the deletions that depend on this count are done.
	shrinking keylock.Locks

	mu sync.Mutex
	// cache tracks whether the cache may be trusted to contain the machines of other sets.
	cache freshness.Tracker
	sets  map[types.NamespacedName]*setState
	// replacements contains the replacements of each set that are in progress, by the UID of the set. The sets of a
	// deployment share one limit.
	replacements map[types.UID]Replacements
	// sizes contains the number of machines that each set had when it was last observed.
	sizes map[types.NamespacedName]int
}

// setState is the state of one set. It is used only by the worker that reconciles the set.
type setState struct {
	uid types.UID
	// cache tracks whether the number of the set's machines in the cache may be trusted.
	cache freshness.Tracker
	// specVersion is a resource version of the set with its current generation.
	generation  int64
	specVersion string
	// statusWritten is the time at which the status was last written.
	statusWritten time.Time
	// batch is the maximum number of machines that the first round of a pass may create, or 0 if the last creation did not
	// succeed.
	batch int
	// awaited is the version of the set for which a pass has already waited until the cache of machines is equally
	// new.
	awaited string
	// remediation and creation are the backoffs after failures. creationFailure is the reason why the last creation
	// failed.
	remediation, creation backoff
	creationFailure       Reason
	failureStreak         failureStreak
	// lostReplacements contains the machines that replace machines whose instance vanished, and that are not
	// available yet. lost is the backoff that applies if the instance of such a replacement vanishes as well.
	lostReplacements Replacements
	lost             backoff
	// recoveries contains the recoveries of the set's machines at the time of the last observation.
	recoveries recoveries
	// steady contains the machines that the set only counts, without checking them.
	steady steadyMachines
	// updated contains the time at which each machine was last patched in place. The entry is removed when the
	// machine is in sync with the template.
	updated map[types.UID]updateSent
}

// updateSent records the time of an in-place patch of a machine, and the generation of the set for which the patch was
// sent.
type updateSent struct {
	generation int64
	at         time.Time
}

func newSharedState() *sharedState {
	return &sharedState{
		sets:         map[types.NamespacedName]*setState{},
		replacements: map[types.UID]Replacements{},
		sizes:        map[types.NamespacedName]int{},
	}
}

// get returns the state of the set.
func (m *sharedState) get(set *v1beta1.MachineSet) *setState {
	key := types.NamespacedName{Namespace: set.Namespace, Name: set.Name}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.sets[key]
	if r == nil || r.uid != set.UID {
		if r != nil {
			delete(m.replacements, r.uid)
		}
		r = &setState{uid: set.UID, updated: map[types.UID]updateSent{}}
		m.sets[key] = r
	}
	return r
}

// forget drops the state of a set and returns the UID of the set, or "" if there was no state.
func (m *sharedState) forget(key types.NamespacedName) (uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r := m.sets[key]; r != nil {
		uid = r.uid
		delete(m.replacements, uid)
		delete(m.sets, key)
	}
	delete(m.sizes, key)
	return uid
}

func (m *sharedState) sizeOf(key types.NamespacedName) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sizes[key]
}

func (m *sharedState) keepSize(key types.NamespacedName, n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sizes[key] = n
}

// trustsCache reports whether a cache with this resource version may be trusted to contain the machines of all sets.
func (m *sharedState) trustsCache(version string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Trusts(version)
}

// cacheMark returns a mark, to be taken before a live LIST.
func (m *sharedState) cacheMark() freshness.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Mark()
}

// listed records the resource version of a live LIST that began at the mark.
func (m *sharedState) listed(began freshness.Mark, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Listed(began, version)
}

// invalidateCache records that it is unknown whether a write succeeded.
func (m *sharedState) invalidateCache() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Invalidate()
}

// replacementsOf returns the replacements in progress of a set. If this process has not observed the set yet, it
// returns false.
func (m *sharedState) replacementsOf(set types.UID) (Replacements, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.replacements[set]
	return r, ok
}

func (m *sharedState) keepReplacements(set types.UID, r Replacements) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.replacements[set] = r
}

// observed records the generation and resource version of the set.
func (r *setState) observed(set *v1beta1.MachineSet) {
	if r.generation != set.Generation {
		r.generation, r.specVersion = set.Generation, set.ResourceVersion
		r.creation, r.creationFailure = backoff{}, Reason{}
	}
}

// updateRetry is the minimum time between two patches of a machine for the same generation of its set. The delay
// prevents a hot loop if another writer repeatedly reverts the patch.
const updateRetry = time.Minute

// dueUpdates returns the updates that were not tried recently. For the other updates, it returns the time until the
// first of them may be tried again.
func (r *setState) dueUpdates(updates []Update, now time.Time) (due []Update, wait time.Duration) {
	outOfSync := make(map[types.UID]updateSent, len(updates))
	for _, u := range updates {
		sent, ok := r.updated[u.From.UID]
		if left := sent.at.Add(updateRetry).Sub(now); ok && sent.generation == r.generation && left > 0 {
			outOfSync[u.From.UID] = sent
			if wait == 0 || left < wait {
				wait = left
			}
			continue
		}
		due = append(due, u)
	}
	r.updated = outOfSync
	return due, wait
}

// sent records that machines were patched.
func (r *setState) sent(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		r.updated[m.UID] = updateSent{generation: r.generation, at: now}
	}
}
