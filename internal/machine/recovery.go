package machine

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"machinist.dev/machinist/pkg/provider"
)

// triesPerAnswer is the number of waiting Machines whose next attempt is moved forward after a successful call. If one
// of these attempts succeeds, further machines try again earlier. A cloud that has just recovered therefore gets only a
// few calls at first.
const triesPerAnswer = 2

// recovery contains the Machines that wait because a call to the cloud failed. At the end of a long outage, the
// delays have grown to minutes, and no event ends these delays early. Only a successful call for another Machine
// shows that the cloud has recovered.
type recovery struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]failedCall
}

type failedCall struct {
	// The time of the failure, and the time before which the cloud wants no calls.
	at, notBefore time.Time
}

func waitsForCloud(code provider.Code) bool {
	switch code {
	case provider.Throttled, provider.Unauthenticated, provider.PermissionDenied:
		return true
	}
	return code.Ambiguous()
}

func (r *recovery) addWaiting(machine types.NamespacedName, at, notBefore time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[types.NamespacedName]failedCall{}
	}
	r.waiting[machine] = failedCall{at: at, notBefore: notBefore}
}

func (r *recovery) forget(machine types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, machine)
}

// takeNext removes and returns the Machines that may be tried now because a call has succeeded. Machines that have
// waited longest come first.
func (r *recovery) takeNext(now time.Time) (hurried []types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hurried = slices.SortedFunc(maps.Keys(r.waiting), func(a, b types.NamespacedName) int {
		return cmp.Or(r.waiting[a].at.Compare(r.waiting[b].at), cmp.Compare(a.String(), b.String()))
	})
	hurried = slices.DeleteFunc(hurried, func(machine types.NamespacedName) bool {
		return r.waiting[machine].notBefore.After(now)
	})
	hurried = hurried[:min(len(hurried), triesPerAnswer)]
	for _, machine := range hurried {
		delete(r.waiting, machine)
	}
	return hurried
}

// callSucceeded records that a call for this Machine has succeeded. Other Machines whose calls failed then try again
// earlier.
func (p *pass) callSucceeded() {
	self := client.ObjectKeyFromObject(p.machine)
	p.recovery.forget(self)
	now := p.Clock.Now()
	for _, machine := range p.recovery.takeNext(now) {
		p.states.retryNow(machine, now)
		p.trigger.Enqueue(machine)
	}
}
