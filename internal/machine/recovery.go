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

// triesPerAnswer is how many waiting Machines are tried early when a call succeeds. Each of these tries that succeeds
// triggers as many more. So a cloud that has just recovered gets only a few calls at first.
const triesPerAnswer = 2

// recovery has the Machines that wait because the cloud failed. At the end of a long outage their waits have grown to
// minutes, and no event shows that the cloud has recovered. A call that succeeds for another Machine shows it.
type recovery struct {
	mu      sync.Mutex
	waiting map[types.NamespacedName]failedCall
}

// failedCall is the failed call because of which a Machine waits.
type failedCall struct {
	// at is when the call failed. notBefore is the time before which the cloud asked not to be called.
	at, notBefore time.Time
}

// waitsForCloud reports whether a call that failed with this code may succeed as soon as the cloud has recovered.
func waitsForCloud(code provider.Code) bool {
	switch code {
	case provider.Throttled, provider.Unauthenticated, provider.PermissionDenied:
		return true
	}
	return code.Ambiguous()
}

// wait remembers a Machine whose call failed.
func (r *recovery) wait(machine types.NamespacedName, at, notBefore time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.waiting == nil {
		r.waiting = map[types.NamespacedName]failedCall{}
	}
	r.waiting[machine] = failedCall{at: at, notBefore: notBefore}
}

// forget drops a Machine that does not wait any more.
func (r *recovery) forget(machine types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.waiting, machine)
}

// takeNext removes and returns the Machines to try now that a call has succeeded, the longest-waiting first.
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

// callSucceeded records that a Create, Update or Delete for this Machine succeeded, and moves forward the next try of
// Machines whose calls failed before.
func (p *pass) callSucceeded() {
	self := client.ObjectKeyFromObject(p.machine)
	p.recovery.forget(self)
	now := p.Clock.Now()
	for _, machine := range p.recovery.takeNext(now) {
		p.states.hurry(machine, now)
		p.trigger.Enqueue(machine)
	}
}
