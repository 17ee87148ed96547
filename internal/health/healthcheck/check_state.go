package healthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is all that a Reconciler remembers. Losing it makes clocks start anew, and may lose count of a replacement
// whose predecessor is gone already.
type state struct {
	mu sync.Mutex
	checkState
}

// checkState is what is remembered.
type checkState struct {
	// machines is how many there were when they were last judged.
	machines int
	// began is when the first pass was made.
	began time.Time
	// melting are the domains that melt, recovered the times at which domains ended to.
	melting   map[string]bool
	recovered map[string]time.Time
	// statusWritten is when the status of each check was last written.
	statusWritten map[types.UID]time.Time
	// rejections are why the built-in policy remediates nothing, by namespace.
	restrictions map[string]string
	// seen are when signals were first observed, as of the last pass that judged.
	seen *Observations
	// vacancies are the replacements that were not seen yet, by set. gone are those of machines that are gone since the
	// last pass; events write them, guarded by state.mu.
	vacancies, gone map[types.UID][]Vacancy
}

func newState() *state {
	return &state{checkState: checkState{
		melting: map[string]bool{}, recovered: map[string]time.Time{}, statusWritten: map[types.UID]time.Time{},
		restrictions: map[string]string{}, vacancies: map[types.UID][]Vacancy{},
	}}
}

// sizeOfFleet returns how many machines there were when they were last judged. Event handlers ask for it.
func (m *state) sizeOfFleet() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines
}

func (m *state) keepSize(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines = n
}

// followMeltdown takes note of where it melts, and returns the domains where that began and where it ended.
func (r *checkState) followMeltdown(now time.Time, d Meltdown) (began, ended []string) {
	for domain := range d {
		if !r.melting[domain] {
			began = append(began, domain)
		}
	}
	for domain := range r.melting {
		if _, still := d[domain]; !still {
			ended = append(ended, domain)
			r.recovered[domain] = now
		}
	}
	r.melting = map[string]bool{}
	for domain := range d {
		r.melting[domain] = true
	}
	return began, ended
}

// forgetOld drops what is of no use any more.
func (r *checkState) forgetOld(now time.Time, checks map[types.UID]bool) {
	maps.DeleteFunc(r.statusWritten, func(uid types.UID, _ time.Time) bool { return !checks[uid] })
	maps.DeleteFunc(r.recovered, func(_ string, t time.Time) bool { return now.Sub(t) > storedRecovery })
}

// storedRecovery is longer than any timeout of a policy matters.
const storedRecovery = 7 * 24 * time.Hour
