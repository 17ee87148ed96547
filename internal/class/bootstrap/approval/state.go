package approval

import (
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

const (
	// answerValid is the time during which an answer of the provider about an instance is used for approvals. During this
	// time, the provider is not asked again, even if a node sends many requests.
	answerValid = 5 * time.Minute
	// answerRetry is the delay until the provider is asked again after an error, or after an answer that lacks the name or
	// an IP address.
	answerRetry = 10 * time.Second
	// reportInterval is the minimum time between two reports about the same machine with the same reason.
	// Kubernetes deletes a pending request after a day.
	reportInterval = 24 * time.Hour
)

// state is the information that a Reconciler keeps in memory between requests. After a restart, state is empty.
// After a restart, the provider is asked again, and events are recorded again.
type state struct {
	mu        sync.Mutex
	answers   map[types.UID]answer
	reported  map[report]time.Time
	lastSweep time.Time
	// rejections contains the pending requests that are reported in conditions of Machines. The keys are the names
	// of the requests.
	rejections map[string]rejection
}

// rejection is a pending request that is reported in the condition of a Machine.
type rejection struct {
	machine         types.NamespacedName
	uid             types.UID
	reason, message string
}

// answer is an answer of the provider about an instance. The field reported is nil if the call failed.
type answer struct {
	providerID string
	reported   *Reported
	until      time.Time
}

// report identifies an event by its machine and its reason.
type report struct {
	machine types.UID
	reason  Reason
}

func newState() *state {
	return &state{answers: map[types.UID]answer{}, reported: map[report]time.Time{},
		rejections: map[string]rejection{}}
}

// cachedAnswer returns the last answer of the provider about a machine's instance. ok is false if there is no answer,
// or if the answer is no longer valid.
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

// firstReport returns true if the same report was not made within the last reportInterval. In this case, it also
// records the time of the report.
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

// addRejection records that a request is left pending and is reported in the condition of a Machine.
func (m *state) addRejection(request string, r rejection) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rejections[request] = r
}

// rejectionsOf returns the names of a Machine's rejected requests in sorted order, and the rejection of the first
// request in this order.
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

// removeRejection removes and returns the rejection of a request. known is false if the request was not rejected.
func (m *state) removeRejection(request string) (r rejection, known bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	r, known = m.rejections[request]
	delete(m.rejections, request)
	return r, known
}

// sweep deletes entries that are no longer valid. It does nothing if the last sweep was less than answerValid ago.
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
