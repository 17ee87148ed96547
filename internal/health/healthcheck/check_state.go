package healthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is everything that a Reconciler remembers between passes. After a restart, timeouts start again. The count of
// retries of a replacement may also be lost if the machine that it replaced is already gone.
type state struct {
	mu sync.Mutex
	checkState
}

// checkState is the part of the state that only passes use, except for fields whose comments say otherwise.
type checkState struct {
	// machines is the number of machines in the last pass. state.mu guards it.
	machines int
	// began is the time at which the first pass began.
	began time.Time
	// inMeltdown contains the failure domains that are in a meltdown. recovered contains, for each failure domain, the end
	// of its last meltdown.
	inMeltdown map[string]bool
	recovered  map[string]time.Time
	// statusWritten contains the time of the last write of each check's status.
	statusWritten map[types.UID]time.Time
	// restrictions contains, for each namespace, the reason why the built-in policy remediates no machine.
	restrictions map[string]string
	// seen contains the observations of the last pass that evaluated machines.
	seen *Observations
	// predecessors contains, for each set, the machines whose replacements were not found yet. gone contains the machines
	// of each set that were deleted since the last pass. Event handlers write the field gone, so state.mu guards it.
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

// trackMeltdown stores the present meltdown. It returns the failure domains in which a meltdown began or ended.
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

// recoveryRetention is how long the Reconciler remembers the end of a meltdown. It is longer than any timeout of a
// policy.
const recoveryRetention = 7 * 24 * time.Hour
