package approval

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// answerValid is how long an answer of the provider is used, even if a node sends many requests.
	answerValid = 5 * time.Minute
	// answerRetry is the delay before the provider is asked again after an error or an incomplete answer.
	answerRetry = 10 * time.Second
	// reportInterval is the minimum time between reports about the same machine and reason. Kubernetes deletes pending
	// requests after a day.
	reportInterval = 24 * time.Hour
)

// state is what a Reconciler remembers between requests. After a restart, the provider is asked again and events are
// recorded again.
type state struct {
	mu         sync.Mutex
	answers    map[types.UID]answer
	reported   map[report]time.Time
	lastSweep  time.Time
	rejections map[string]rejection
}

type rejection struct {
	machine         types.NamespacedName
	uid             types.UID
	reason, message string
}

type answer struct {
	providerID string
	reported   *ReportedInstance
	until      time.Time
}

type report struct {
	machine types.UID
	reason  Reason
}

func newState() *state {
	return &state{answers: map[types.UID]answer{}, reported: map[report]time.Time{},
		rejections: map[string]rejection{}}
}

// cachedAnswer returns the provider's last answer about a machine's instance. ok is false if there is no answer, or if
// the answer is no longer valid.
func (m *state) cachedAnswer(machine *v1beta1.Machine, now time.Time) (a answer, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	a, ok = m.answers[machine.UID]
	return a, ok && a.providerID == machine.Spec.ProviderID && now.Before(a.until)
}

func (m *state) storeAnswer(machine types.UID, a answer, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	m.answers[machine] = a
}

// firstReport reports whether the last such report is at least reportInterval ago, and if so records the new one.
func (m *state) firstReport(r report, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep(now)
	if until, ok := m.reported[r]; ok && now.Before(until) {
		return false
	}
	m.reported[r] = now.Add(reportInterval)
	return true
}

func (m *state) addRejection(request string, r rejection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rejections[request] = r
}

// rejectionsOf returns the sorted names of a Machine's rejected requests, and the first rejection.
func (m *state) rejectionsOf(machine types.NamespacedName) (requests []string, first rejection) {
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

// removeRejection removes and returns the rejection of a request. known is false if there was none.
func (m *state) removeRejection(request string) (r rejection, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known = m.rejections[request]
	delete(m.rejections, request)
	return r, known
}

func (m *state) sweep(now time.Time) {
	if now.Sub(m.lastSweep) < answerValid {
		return
	}
	m.lastSweep = now
	for uid, a := range m.answers {
		if !now.Before(a.until) {
			delete(m.answers, uid)
		}
	}
	for r, until := range m.reported {
		if !now.Before(until) {
			delete(m.reported, r)
		}
	}
}
