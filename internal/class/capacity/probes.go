package capacity

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"

	"machinist.dev/machinist/api/v1beta1"
)

// probes contains the machines that probe, and the machines that wait for their turn.
type probes struct {
	mu sync.Mutex
	// machines contains the probing machine of each pool, and pools the pool of each probing machine.
	machines map[Pool]types.NamespacedName
	pools    map[types.NamespacedName]Pool
	waiting  map[Pool]map[types.NamespacedName]bool
}

// AcquireProbe reports whether the machine may request an instance of an exhausted class now. Until ReleaseProbe is
// called, no other machine of the pool may do so.
func (m *Memory) AcquireProbe(class *v1beta1.MachineClass, machine types.NamespacedName) bool {
	p, pool := &m.probes, m.poolOf(class)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.machines == nil {
		p.machines, p.pools = map[Pool]types.NamespacedName{}, map[types.NamespacedName]Pool{}
		p.waiting = map[Pool]map[types.NamespacedName]bool{}
	}
	holder, busy := p.machines[pool]
	held, probes := p.pools[machine]
	switch {
	case busy && holder != machine:
		p.wait(pool, machine)
		return false
	case busy:
		return true
	case probes:
		// The attempt for another class has not ended. Its end triggers the machine, too.
		p.wait(held, machine)
		return false
	}
	p.machines[pool], p.pools[machine] = machine, pool
	return true
}

// wait records that the machine waits for the end of the probe of a pool.
func (p *probes) wait(pool Pool, machine types.NamespacedName) {
	if p.waiting[pool] == nil {
		p.waiting[pool] = map[types.NamespacedName]bool{}
	}
	p.waiting[pool][machine] = true
}

// ReleaseProbe ends the probe of a machine, if it has one. It returns the machines that have waited for their turn,
// sorted by name. These machines must be reconciled.
func (m *Memory) ReleaseProbe(machine types.NamespacedName) []types.NamespacedName {
	p := &m.probes
	p.mu.Lock()
	defer p.mu.Unlock()
	pool, probing := p.pools[machine]
	if !probing {
		return nil
	}
	next := slices.SortedFunc(maps.Keys(p.waiting[pool]), func(a, b types.NamespacedName) int {
		return strings.Compare(a.String(), b.String())
	})
	delete(p.machines, pool)
	delete(p.pools, machine)
	delete(p.waiting, pool)
	return next
}
