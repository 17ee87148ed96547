package healthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is everything that a Reconciler remembers. If a restart loses it, timeouts start again, and the count of
// retries may be lost for a replacement whose predecessor is already gone.
type state struct {
	mu sync.Mutex
	checkState
}

// checkState is the part of state that only the pass uses, except for the fields that say otherwise.
type checkState struct {
	// machines is the number of machines in the last pass. state.mu guards it.
	machines int
	// began is when the first pass began.
	began time.Time
	// inMeltdown contains the domains in a meltdown. recovered contains the times at which domains recovered from a
	// meltdown.
	inMeltdown map[string]bool
	recovered  map[string]time.Time
	// statusWritten is when the status of each check was last written.
	statusWritten map[types.UID]time.Time
	// restrictions are the reasons why the built-in policy remediates nothing, by namespace.
	restrictions map[string]string
	// seen are the observations of the last pass that evaluated machines.
	seen *Observations
	// predecessors are the machines, by set, whose replacements were not found yet. gone are those that were deleted since
	// the last pass. Event handlers write gone, so state.mu guards it.
	predecessors, gone map[types.UID][]Predecessor
}

func newState() *state {
	return &state{checkState: checkState{
		inMeltdown: map[string]bool{}, recovered: map[string]time.Time{}, statusWritten: map[types.UID]time.Time{},
		restrictions: map[string]string{}, predecessors: map[types.UID][]Predecessor{},
	}}
}

// machineCount returns the number of machines in the last pass. Event handlers call it.
func (m *state) machineCount() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.machines
}

func (m *state) setMachineCount(n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.machines = n
}

// trackMeltdown stores the present meltdown. It returns the domains in which a meltdown began or ended.
func (r *checkState) trackMeltdown(now time.Time, d Meltdown) (began, ended []string) {
	for domain := range d {
		if !r.inMeltdown[domain] {
			began = append(began, domain)
		}
	}
	for domain := range r.inMeltdown {
		if _, still := d[domain]; !still {
			ended = append(ended, domain)
			r.recovered[domain] = now
		}
	}
	r.inMeltdown = map[string]bool{}
	for domain := range d {
		r.inMeltdown[domain] = true
	}
	return began, ended
}

// forgetOld drops data that is no longer needed.
func (r *checkState) forgetOld(now time.Time, checks map[types.UID]bool) {
	maps.DeleteFunc(r.statusWritten, func(uid types.UID, _ time.Time) bool { return !checks[uid] })
	maps.DeleteFunc(r.recovered, func(_ string, t time.Time) bool { return now.Sub(t) > recoveryRetention })
}

// recoveryRetention is how long the end of a meltdown is remembered. It is longer than any timeout of a policy.
const recoveryRetention = 7 * 24 * time.Hour
