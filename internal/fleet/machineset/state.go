package machineset

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
	"machinist.dev/machinist/internal/platform/freshness"
	"machinist.dev/machinist/internal/platform/keylock"
)

// sharedState is the memory that a Reconciler's workers share. After a restart, a new process needs additional reads
// and time to rebuild it. The number of machines does not depend on this memory.
type sharedState struct {
	// remediating contains a lock for each deployment or standalone set, because the sets of a deployment share a limit
	// of remediations. A set holds the lock while it counts the remediations in progress and begins new ones.
	remediating keylock.Locks
	// shrinkLocks contains a lock for each deployment. A set holds the lock while it counts the available machines of
	// the deployment and deletes machines on the basis of this count.
	shrinkLocks keylock.Locks

	mu sync.Mutex
	// cache knows whether the cache of all machines is new enough for decisions.
	cache freshness.Tracker
	sets  map[types.NamespacedName]*setState
	// replacements holds the replacements in progress by the UID of the set, because the sets of a deployment share a
	// limit.
	replacements map[types.UID]Replacements
	sizes        map[types.NamespacedName]int
}

// setState is what the process remembers about one set. Only the worker that reconciles the set uses it.
type setState struct {
	uid types.UID
	// cache knows whether the cache is new enough to count the machines of this set.
	cache freshness.Tracker
	// specVersion is the resource version of the set when this process first saw the current generation.
	generation    int64
	specVersion   string
	statusWritten time.Time
	// batch is how many machines the next pass may create in its first round, or 0 after a failure.
	batch int
	// awaitedVersion is the resource version of the set for which a pass has already waited. Passes do not wait for
	// the same version again.
	awaitedVersion        string
	remediation, creation backoff
	// rebalancing delays the next rebalancing after one whose replacement found no capacity.
	rebalancing     backoff
	creationFailure ConditionReason
	failureStreak   failureStreak
	// lostReplacements holds the replacements in progress for machines whose instances vanished.
	lostReplacements Replacements
	// lostBackoff delays the next replacement if the instance of a replacement vanishes too.
	lostBackoff backoff
	recoveries  recoveries
	// steadyMachines remembers which machines need no check, so that a pass only counts them.
	steadyMachines steadyMachines
	updated        map[types.UID]updateSent
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

// recordList passes the resource version of a live LIST to the tracker of the cache. The mark must be from before the
// LIST.
func (m *sharedState) recordList(began freshness.Mark, version string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.cache.RecordList(began, version)
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
		r.creation, r.creationFailure = backoff{}, ConditionReason{}
	}
}

// updateRetry is the minimum time between two patches of a machine for the same generation of its set. updateRetry
// limits the writes if another client reverts each patch.
const updateRetry = time.Minute

// dueUpdates returns the updates that were not sent within the last updateRetry. wait is the time until the next of the
// remaining updates may be sent. A machine that waits for capacity may get another class at any time, because the
// provider limits how often it waits.
func (r *setState) dueUpdates(updates []Update, now time.Time) (due []Update, wait time.Duration) {
	outOfSync := make(map[types.UID]updateSent, len(updates))
	for _, u := range updates {
		sent, ok := r.updated[u.From.UID]
		left := sent.at.Add(updateRetry).Sub(now)
		if ok && sent.generation == r.generation && left > 0 && !changesClass(u) {
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

func changesClass(u Update) bool {
	return !equality.Semantic.DeepEqual(u.From.Spec.ClassRef, u.To.Spec.ClassRef)
}

func (r *setState) sent(machines []*v1beta1.Machine, now time.Time) {
	for _, m := range machines {
		r.updated[m.UID] = updateSent{generation: r.generation, at: now}
	}
}
