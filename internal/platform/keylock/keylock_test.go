package keylock

import (
	"fmt"
	"sync"
	"testing"
)

// Rule: locks-not-held-for-others.
func TestALockBlocksNoOtherKey(t *testing.T) {
	var l Locks
	var unlock []func()
	for i := range 1000 {
		unlock = append(unlock, l.Lock(fmt.Sprint(i))) // A shared mutex would block for ever.
	}
	for _, f := range unlock {
		f()
	}
	if len(l.keys) != 0 {
		t.Errorf("%d keys are remembered that nothing holds", len(l.keys))
	}
}

func TestALockIsHeldByOne(t *testing.T) {
	var l Locks
	var all sync.WaitGroup
	counts := [2]int{}
	for i := range 100 {
		all.Go(func() {
			for range 100 {
				unlock := l.Lock(fmt.Sprint(i % 2))
				counts[i%2]++
				unlock()
			}
		})
	}
	all.Wait()
	if counts != [2]int{5000, 5000} || len(l.keys) != 0 {
		t.Errorf("counted %v under the locks, want 5000 for each; %d keys are left", counts, len(l.keys))
	}
}
