package approval

import (
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// addressesFresh is how long what the provider said of an instance's addresses is good for an approval, and how
	// often it is asked at most, whatever a node does.
	addressesFresh = 5 * time.Minute
	// askAgain is when the provider is asked again after an error.
	askAgain = 30 * time.Second
	// reportedFor is how long a person is not reported the same of the same machine again: Kubernetes removes a request
	// that stays pending after a day.
	reportedFor = 24 * time.Hour
)

// state is all that a Reconciler keeps between requests. Losing it costs a call to the provider and a second event.
type state struct {
	mu       sync.Mutex
	readings map[types.UID]reading
	reported map[telling]time.Time
	swept    time.Time
	// rejections are the requests that are left pending and are in the condition of a Machine, by their names.
	rejections map[string]rejection
}

// rejection is what the condition of a Machine says of a request that is left pending.
type rejection struct {
	machine         types.NamespacedName
	uid             types.UID
	reason, message string
}

// reading is what the provider said of an instance's addresses. addresses is nil where it failed to.
type reading struct {
	addresses []corev1.NodeAddress
	until     time.Time
}

// telling is what a person was reported: why a request of a machine is left pending.
type telling struct {
	machine types.UID
	reason  Reason
}

func newState() *state {
	return &state{readings: map[types.UID]reading{}, reported: map[telling]time.Time{},
		rejections: map[string]rejection{}}
}

// reading returns what is kept about a machine's addresses and still holds.
func (m *state) reading(machine types.UID, now time.Time) (reading, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, ok := m.readings[machine]
	return r, ok && now.Before(r.until)
}

func (m *state) remember(machine types.UID, r reading, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	m.readings[machine] = r
}

// firstTelling reports whether a person has not been reported yet, and remembers that now they are.
func (m *state) firstTelling(t telling, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	if until, ok := m.reported[t]; ok && now.Before(until) {
		return false
	}
	m.reported[t] = now.Add(reportedFor)
	return true
}

// refused notes that a request is left pending.
func (m *state) refused(request string, r rejection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rejections[request] = r
}

// refusedOf returns the names of the requests of a Machine that are left pending, sorted, and what is known of the
// first.
func (m *state) refusedOf(machine types.NamespacedName) (requests []string, first rejection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for name, r := range m.rejections {
		if r.machine == machine {
			requests = append(requests, name)
		}
	}
	slices.Sort(requests)
	if len(requests) > 0 {
		first = m.rejections[requests[0]]
	}
	return requests, first
}

// ended forgets a request. It reports whether it was known.
func (m *state) ended(request string) (r rejection, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known = m.rejections[request]
	delete(m.rejections, request)
	return r, known
}

// sweep drops what has ended, now and then.
func (m *state) sweep(now time.Time) {
	if now.Sub(m.swept) < addressesFresh {
		return
	}
	m.swept = now
	for uid, r := range m.readings {
		if !now.Before(r.until) {
			delete(m.readings, uid)
		}
	}
	for t, until := range m.reported {
		if !now.Before(until) {
			delete(m.reported, t)
		}
	}
}
