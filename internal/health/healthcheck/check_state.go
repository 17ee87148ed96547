package healthcheck

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is what a Reconciler remembers between passes. After a restart, timeouts start again. The process may also
// forget how many machines were replaced in a row, if the last replaced machine is gone.
type state struct {
	mu sync.Mutex
	checkState
}

// checkState is what the Reconciler remembers between passes. Passes run one at a time, so most fields need no lock.
type checkState struct {
	// machines is the number of machines in the last pass. state.mu guards it.
	machines int
	began    time.Time
	// inMeltdown contains the failure domains in which a meltdown is in progress. recovered maps each failure domain to
	// the time at which its last meltdown ended.
	inMeltdown    map[string]bool
	recovered     map[string]time.Time
	statusWritten map[types.UID]time.Time
	// restrictions maps a namespace to the reason why the built-in policy remediates no machine in that namespace.
	restrictions map[string]string
	seen         *Observations
	// predecessors contains, for each set, the replaced machines whose replacements were not found yet. goneMachines
	// contains the machines that were deleted since the last pass. Event handlers write to goneMachines, so state.mu
	// guards this map.
	predecessors, goneMachines map[types.UID][]Predecessor
	// remediationsUntil is the time until which the remediations of other operators are read regularly.
	remediationsUntil time.Time
	// remediationSignals are the remediations that were read last. Their timeouts continue while they cannot be read.
	remediationSignals []Signal
}

func newState() *state {
	return &state{checkState: checkState{
		inMeltdown: map[string]bool{}, recovered: map[string]time.Time{}, statusWritten: map[types.UID]time.Time{},
		restrictions: map[string]string{}, predecessors: map[types.UID][]Predecessor{},
	}}
}

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

// trackMeltdown stores the current meltdown and returns the failure domains in which a meltdown began or ended.
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

func (r *checkState) forgetOld(now time.Time, checks map[types.UID]bool) {
	maps.DeleteFunc(r.statusWritten, func(uid types.UID, _ time.Time) bool { return !checks[uid] })
	maps.DeleteFunc(r.recovered, func(_ string, t time.Time) bool { return now.Sub(t) > recoveryRetention })
}

// recoveryRetention is how long the end of a meltdown is remembered. This duration is longer than all timeouts of
// policies.
const recoveryRetention = 7 * 24 * time.Hour
