package keylock

import (
	"fmt"
	"sync"
	"testing"
)

// Rule: locks-not-held-for-others.
func TestALockDoesNotBlockOtherKeys(t *testing.T) {
	var l Locks
	var unlock []func()
	for i := range 1000 {
		unlock = append(unlock, l.Lock(fmt.Sprint(i))) // A shared mutex would block forever.
	}
	for _, f := range unlock {
		f()
	}
	if len(l.keys) != 0 {
		t.Errorf("%d unlocked keys are still stored", len(l.keys))
	}
}

func TestALockIsExclusive(t *testing.T) {
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
		t.Errorf("counted %v under the locks, want 5000 for each; %d keys are still stored", counts, len(l.keys))
	}
}
