package approval

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// answerValid is how long the provider's answer about an instance can be used for approvals. It also limits how often
	// the provider is asked, however many requests a node sends.
	answerValid = 5 * time.Minute
	// answerRetry is how soon the provider is asked again after an error or an answer without IP addresses.
	answerRetry = 30 * time.Second
	// reportInterval is how often the same reason is reported on the same machine. Kubernetes deletes a pending request
	// after a day.
	reportInterval = 24 * time.Hour
)

// state is what a Reconciler remembers between requests. After a restart it is empty, which costs another call to the
// provider and another event.
type state struct {
	mu        sync.Mutex
	answers   map[types.UID]answer
	reported  map[report]time.Time
	lastSweep time.Time
	// rejections are the pending requests that are reported in the condition of a Machine, by their names.
	rejections map[string]rejection
}

// rejection is a pending request that is reported in the condition of a Machine.
type rejection struct {
	machine         types.NamespacedName
	uid             types.UID
	reason, message string
}

// answer is the provider's answer about an instance. reported is nil if the call failed.
type answer struct {
	providerID string
	reported   *Reported
	until      time.Time
}

// report identifies an event: the machine, and why its request is left pending.
type report struct {
	machine types.UID
	reason  Reason
}

func newState() *state {
	return &state{answers: map[types.UID]answer{}, reported: map[report]time.Time{},
		rejections: map[string]rejection{}}
}

// cachedAnswer returns the provider's last answer about a machine's instance. ok is false if it is no longer valid.
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

// firstReport returns whether this has not been reported within reportInterval, and records it as reported.
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

// addRejection records that a request is left pending.
func (m *state) addRejection(request string, r rejection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rejections[request] = r
}

// rejectionsOf returns the names of a Machine's rejected requests, sorted, and the rejection of the first.
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

// removeRejection removes the rejection of a request. known is false if there was none.
func (m *state) removeRejection(request string) (r rejection, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known = m.rejections[request]
	delete(m.rejections, request)
	return r, known
}

// sweep deletes entries that are no longer valid, at most once per answerValid.
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
