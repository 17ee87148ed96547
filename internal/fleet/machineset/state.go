package machineset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/keylock"
)

// sharedState is the memory that a Reconciler's workers share. Losing it costs reads and time, but the number of
// machines stays exact.
type sharedState struct {
	// remediating holds a lock for each deployment or standalone set. It is held from counting the remediations in
	// progress until the new ones count too, because sets share a budget.
	remediating keylock.Locks
	// shrinking holds a lock for each deployment. It is held from counting the available machines until the deletions
	// that rely on the count are done.
	shrinking keylock.Locks

	mu sync.Mutex
	// cache tracks whether the cache of all machines may be trusted.
	cache freshness.Tracker
	sets  map[types.NamespacedName]*setState
	// replacements holds the replacements in progress by the UID of the set, because the sets of a deployment share a
	// limit.
	replacements map[types.UID]Replacements
	sizes        map[types.NamespacedName]int
}

// setState is the state of one set. Only the worker that reconciles the set uses it.
type setState struct {
	uid types.UID
	// cache tracks whether the cached number of the set's machines may be trusted.
	cache freshness.Tracker
	// specVersion is a resource version of the set with its current generation.
	generation    int64
	specVersion   string
	statusWritten time.Time
	// batch is how many machines the next pass may create in its first round, or 0 after a failure.
	batch int
	// awaited is the version of the set for which a pass has already waited for the cache.
	awaited               string
	remediation, creation backoff
	creationFailure       Reason
	failureStreak         failureStreak
	// lostReplacements holds replacements of vanished machines that are not available yet. lost is the backoff if they
	// vanish too.
	lostReplacements Replacements
	lost             backoff
	recoveries       recoveries
	// steady holds the machines that the set counts without checking them.
	steady  steadyMachines
	updated map[types.UID]updateSent
}

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

// trustsCache reports whether a cache of this version contains the machines of all sets.
func (m *sharedState) trustsCache(version string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Trusts(version)
}

// cacheMark returns a mark that must be taken before a live LIST.
func (m *sharedState) cacheMark() freshness.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.cache.Mark()
}

// listed records the version of a live LIST that began at the mark.
func (m *sharedState) listed(began freshness.Mark, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Listed(began, version)
}

func (m *sharedState) invalidateCache() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.Invalidate()
}

// replacementsOf returns a set's replacements in progress, or false if this process has not observed the set.
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

func (r *setState) observed(set *v1beta1.MachineSet) {
	if r.generation != set.Generation {
		r.generation, r.specVersion = set.Generation, set.ResourceVersion
		r.creation, r.creationFailure = backoff{}, Reason{}
	}
}

// updateRetry is the minimum time between two patches of a machine for one generation, in case another writer reverts
// the patch.
const updateRetry = time.Minute

// dueUpdates returns the updates that were not sent recently, and the time until the first of the others.
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

func (r *setState) sent(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		r.updated[m.UID] = updateSent{generation: r.generation, at: now}
	}
}
